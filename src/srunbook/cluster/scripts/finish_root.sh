set -eu
root=$1
shift
while [ $# -gt 0 ]; do
    chroot "$root" useradd --uid "$2" --user-group --no-create-home --shell /bin/bash "$1"
    shift 2
done
echo /opt/modulefiles > "$root/etc/environment-modules/modulespath"
mkdir -p "$root/opt/modulefiles" "$root/opt/images" "$root/scratch" "$root/var/log/slurm"
mkdir -p "$root/var/spool/slurmd" "$root/var/spool/slurmctld"
chroot "$root" chown slurm: /var/log/slurm /var/spool/slurmctld
if [ -e "$root/usr/bin/apptainer" ]; then
    chroot "$root" apptainer config global --set "root default capabilities" no
    [ -L "$root/usr/bin/singularity" ] || ln -s apptainer "$root/usr/bin/singularity"
fi
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
