# Starts munge on a machine where it isn't running.
! pgrep -x munged >/dev/null || exit 0
install -d -o munge -g munge -m 0755 /run/munge
setpriv --reuid=munge --regid=munge --clear-groups munged --force
