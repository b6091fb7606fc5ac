# Makes a machine of a root. Arguments: its name, the folder in memory, its GPUs, the size of what it shares between
# processes, what is bound (source, target, and rw or ro), and `--`.
set -eu
name=$1 space=$2 gpus=$3 shared=$4
shift 4
hostname "$name"
mkdir -p "$space/$name/upper" "$space/$name/work" "$space/$name/root"
cd "$space/$name"
mount -t overlay overlay -o lowerdir=../lower,upperdir=upper,workdir=work root
cd root
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs -o "mode=1777,size=$shared" tmpfs tmp
mount --bind tmp var/tmp # nowhere else in a root may users write: what they keep in memory has a size
mount -t tmpfs -o mode=755,size=64m tmpfs run
mount -t tmpfs -o mode=755,size=1m tmpfs dev
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
mount -t tmpfs -o "mode=1777,size=$shared" tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s fd/0 dev/stdin
ln -s fd/1 dev/stdout
ln -s fd/2 dev/stderr
for device in null zero full random urandom tty; do
    [ -e "/dev/$device" ] || continue
    : >"dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
[ ! -e /dev/fuse ] || mknod -m 666 dev/fuse c 10 229 # for all, as udev has it: this machine may have no udev
index=0
while [ "$index" -lt "$gpus" ]; do # numbers that belong to no driver: Slurm wants a file, and nothing can open it
    mknod "dev/gpu$index" c 240 "$index"
    index=$((index + 1))
done
[ ! -d sys/fs/cgroup ] || mount -t tmpfs -o mode=755,size=1m tmpfs sys/fs/cgroup
while [ "$1" != -- ]; do # what to bind, where, and how
    source=$1 target=${2#/} how=$3
    shift 3
    if [ -d "$source" ]; then mkdir -p "$target"; else
        mkdir -p "$(dirname "$target")"
        [ -e "$target" ] || : >"$target"
    fi
    parent=$(dirname "$target")
    while [ "$parent" != . ]; do
        [ "$how" = rw ] || chmod a+x "$parent" 2>/dev/null || : # an ordinary user must get there
        parent=$(dirname "$parent")
    done
    mount --bind "$source" "$target"
    [ "$how" = rw ] || mount -o remount,bind,ro "$target"
done
shift
mkdir -p .old
pivot_root . .old
cd /
umount -l /.old
rmdir /.old
