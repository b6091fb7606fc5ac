# Starts the accounting, makes the accounts, starts the controller, and sets the limits on what it has.
scontrol show hostnames ctl >/dev/null # reads slurm.conf, and nothing has been started yet
install -d -o mysql -g mysql -m 0755 /run/mysqld
ln -s mysqld /run/mariadbd # where newer ones look for the socket
setsid mariadbd --user=mysql --skip-networking --skip-log-bin --innodb-flush-log-at-trx-commit=0     --innodb-lock-wait-timeout=900 --loose-innodb-snapshot-isolation=OFF     --socket=/run/mysqld/mysqld.sock --pid-file=/run/mysqld/mysqld.pid     >/var/log/slurm/mariadbd.log 2>&1 </dev/null &
tries=0
until mariadb-admin --silent ping >/dev/null 2>&1; do
    tries=$((tries + 1))
    if ! kill -0 $! 2>/dev/null || [ "$tries" -ge 3000 ]; then
        tail -n 3 /var/log/slurm/mariadbd.log >&2
        echo "MariaDB died, or did not answer within 300 s" >&2
        exit 1
    fi
    sleep 0.1
done
mariadb --execute="CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED VIA unix_socket; GRANT ALL ON slurm_acct_db.* TO slurm@localhost"
slurmdbd
tries=0
until sacctmgr --immediate add cluster srunbook >/var/log/slurm/sacctmgr.log 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -lt 1500 ] || { cat /var/log/slurm/sacctmgr.log >&2; exit 1; }
    sleep 0.1
done
told() { sh "$1" >/var/log/slurm/accounts.log 2>&1 || { cat /var/log/slurm/accounts.log >&2; exit 1; }; }
told /etc/slurm/accounts.sh
slurmctld
told /etc/slurm/limits.sh
