# Starts what isn't running yet of the accounting and the controller. The first time, makes the accounts.
scontrol show hostnames ctl >/dev/null # reads slurm.conf, and nothing has been started yet
lives() { pgrep -x "$1(-wlm)?" >/dev/null; } # `scontrol reconfigure` starts Debian's slurmctld again as slurmctld-wlm
await() { # a daemon, and a command that works once the daemon does
    daemon=$1 tries=0
    shift
    until "$@" >/run/said 2>&1; do
        tries=$((tries + 1))
        if [ "$tries" -ge 3000 ] || { [ "$tries" -ge 50 ] && ! lives "$daemon"; }; then
            tail -n 3 "/var/log/slurm/$daemon.log" /run/said >&2
            echo "$daemon died, or did not answer within 300 s" >&2
            exit 1
        fi
        sleep 0.1
    done
}

if ! lives mariadbd; then
    install -d -o mysql -g mysql -m 0755 /run/mysqld
    ln -sf mysqld /run/mariadbd # where newer ones look for the socket
    setsid mariadbd --user=mysql --skip-networking --skip-log-bin --innodb-flush-log-at-trx-commit=0 \
        --innodb-lock-wait-timeout=900 --loose-innodb-snapshot-isolation=OFF \
        --socket=/run/mysqld/mysqld.sock --pid-file=/run/mysqld/mysqld.pid \
        >/var/log/slurm/mariadbd.log 2>&1 </dev/null &
fi
await mariadbd mariadb --execute="CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED VIA unix_socket; GRANT ALL ON slurm_acct_db.* TO slurm@localhost"
lives slurmdbd || slurmdbd
await slurmdbd sh -c 'sacctmgr -nP show cluster format=cluster | grep -q . || sacctmgr --immediate add cluster srunbook'
serve() { # what it has not written yet of its state is no reason to give up
    lives slurmctld || slurmctld -i "$@"
    await slurmctld sh -c 'scontrol ping | grep -q UP'
}
tell() { # Slurm limits only what it counts, and the controller has told accounting that before it is registered
    await slurmctld sh -c 'sacctmgr -nP show cluster format=controlhost | grep -q .'
    number=0
    while IFS= read -r line; do
        number=$((number + 1))
        case $line in '' | '#'*) continue ;; esac
        eval "sacctmgr --immediate $line" >/run/said 2>&1 </dev/null && continue
        cat /run/said >&2
        echo "sacctmgr refuses line $number: $line" >&2
        exit 1
    done </etc/slurm/sacctmgr
    touch /run/accounts
}
qos='^ *PartitionName=.* QOS='
if [ ! -e /run/accounts ] && grep -qi "$qos" /etc/slurm/slurm.conf; then # it starts only if the QOS of a partition is there
    cp -r /etc/slurm /run/slurm
    sed -i "/$qos/I s/ QOS=[^ ]*//I" /run/slurm/slurm.conf
    serve -f /run/slurm/slurm.conf
    tell
    pkill -x 'slurmctld(-wlm)?'
    while lives slurmctld; do sleep 0.1; done
fi
serve
[ -e /run/accounts ] || tell
