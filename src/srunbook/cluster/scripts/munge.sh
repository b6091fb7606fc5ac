# Starts munge on a machine.
install -d -o munge -g munge -m 0755 /run/munge
setpriv --reuid=munge --regid=munge --clear-groups munged
