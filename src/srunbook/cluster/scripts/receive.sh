# Unpacks its input beside the target, and moves it there once all of it has come. Arguments: the target, its folder,
# its name, and the name to take if the target is a folder.
refuse() { printf '%s\n' "$*" >&2; exit 1; }
target=$1 folder=$2 name=$3
if [ -d "$target" ]; then folder=$target name=$4; fi
[ -n "$name" ] || refuse "no such folder: ${target#./}"
cd -- "$folder" 2>/dev/null || refuse "no folder ${folder#./} that $(id -un) may enter"
half=$(mktemp --directory ./.copy-XXXXXXXXXX) || exit 1
trap 'rm -rf -- "$half"' EXIT
trap 'exit 1' HUP INT TERM
tar --extract --directory="$half" || exit 1
if [ -d "$half/copy" ] && { [ -e "./$name" ] || [ -L "./$name" ]; }; then
    refuse "$PWD/$name is there already: remove it, or copy to another name"
fi
mv --force --no-target-directory -- "$half/copy" "./$name"
