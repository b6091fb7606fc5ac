# Makes the root of a container in /mnt/root, as enroot 4.1 does by default: its own /tmp, the node's /proc, /sys and /dev.
# Arguments: the squashfs file, what to mount, and a job script if there is one.
set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin image=$1 mounts=$2${3:+,$3}
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt
mkdir /mnt/lower /mnt/upper /mnt/work /mnt/root
squashfuse "$image" /mnt/lower
cd /mnt
mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work root
mount -t tmpfs -o mode=755 tmpfs root/tmp
IFS=,
for entry in /proc /sys /dev /etc/slurm /etc/hosts /etc/resolv.conf /etc/passwd /etc/group $mounts; do
    [ -n "$entry" ] || continue
    source=${entry%%:*}
    rest=${entry#"$source"}
    rest=${rest#:}
    target=root${rest%%:*}
    [ "$target" != root ] || target=root$source
    mkdir -p "$(dirname "$target")"
    if [ -d "$source" ]; then mkdir -p "$target"; else : >>"$target"; fi
    mount --rbind "$source" "$target"
    case $rest in *:*ro*) mount -o remount,bind,ro "$target" ;; esac
done
