# Packs a file or a folder; a link that is named is what it leads to, and others stay links.
place=$(realpath --canonicalize-existing -- "$1") || exit 1
exec tar --create --hard-dereference --directory="$(dirname -- "$place")" "./$(basename -- "$place")"
