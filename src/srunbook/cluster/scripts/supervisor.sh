# The first process of a cluster. Arguments: the folder for file systems in memory, the root below all others, and
# the size of what the machines change in it.
set -eu
read -r _ # nothing is made before this process is on record; without a word, it ends
space=$1 lower=$2 size=$3
mount --make-rprivate /
mount -t tmpfs -o "mode=755,size=$size" tmpfs "$space"
mkdir "$space/lower" "$space/scratch"
mount --bind "$lower" "$space/lower"
mount -t tmpfs -o mode=1777,size=64m tmpfs "$space/scratch"
ip link set lo up
ip link add br0 type bridge
ip link set br0 up
echo ready
exec </dev/null >/dev/null 2>&1
exec sleep infinity
