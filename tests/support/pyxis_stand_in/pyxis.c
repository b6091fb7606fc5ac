/* A stand-in for pyxis 0.24 (https://github.com/NVIDIA/pyxis), which Debian does not package: a SPANK plugin with the
 * options that the scripts in slurm/ use, which starts tasks in a squashfs image. It has no registry, no enroot and no
 * GPUs. Its argument in plugstack.conf is enter.sh. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

SPANK_PLUGIN(pyxis_stand_in, 1)

enum { IMAGE, MOUNTS, WORKDIR, OPTIONS };
static const char *given[OPTIONS];

static int take(int which, const char *argument, int remote)
{
    given[which] = strdup(argument);
    return 0;
}

static struct spank_option options[] = {
    {"container-image", "PATH", "[stand-in for pyxis] squashfs file to start in", 1, IMAGE, take},
    {"container-mounts", "SRC[:DST][,...]", "[stand-in for pyxis] folders to mount", 1, MOUNTS, take},
    {"container-workdir", "PATH", "[stand-in for pyxis] folder to start in", 1, WORKDIR, take},
    SPANK_OPTIONS_TABLE_END
};

int slurm_spank_init(spank_t spank, int argc, char **argv)
{
    for (struct spank_option *option = options; spank_context() != S_CTX_SLURMD && option->name; option++)
        if (spank_option_register(spank, option) != ESPANK_SUCCESS)
            return -1;
    return 0;
}

static int put(const char *file, const char *format, ...)
{
    FILE *stream = fopen(file, "w");
    va_list values;
    if (!stream)
        return -1;
    va_start(values, format);
    vfprintf(stream, format, values);
    va_end(values);
    return fclose(stream);
}

static int become(unsigned user, unsigned group, int namespaces) /* be these in a new user namespace */
{
    unsigned from_user = getuid(), from_group = getgid();
    return unshare(CLONE_NEWUSER | namespaces) || put("/proc/self/setgroups", "deny") ||
           put("/proc/self/uid_map", "%u %u 1", user, from_user) ||
           put("/proc/self/gid_map", "%u %u 1", group, from_group);
}

static int run(spank_t spank, const char *script)
{
    int status = -1, count;
    uint32_t step;
    char **command, *batch = NULL; /* the job script, when sbatch got the options */
    pid_t child;
    spank_get_item(spank, S_JOB_STEPID, &step);
    if (step == SLURM_BATCH_SCRIPT && spank_get_item(spank, S_JOB_ARGV, &count, &command) == ESPANK_SUCCESS)
        batch = command[0];
    child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", script, given[IMAGE], given[MOUNTS] ? given[MOUNTS] : "", batch, NULL);
        _exit(127);
    }
    waitpid(child, &status, 0);
    return status;
}

static void set_variables(spank_t spank, char *line, size_t size) /* the image's win over the job's */
{
    FILE *stream = fopen("/etc/environment", "r");
    for (const char **name = (const char *[]){"LANG", "LANGUAGE", "LC_ALL", NULL}; *name; name++)
        spank_unsetenv(spank, *name);
    while (stream && fgets(line, size, stream)) {
        char *value = strchr(line, '=');
        if (!value)
            continue;
        *value++ = '\0';
        value[strcspn(value, "\n")] = '\0';
        spank_setenv(spank, line, value, 1);
    }
    if (stream)
        fclose(stream);
}

int slurm_spank_task_init(spank_t spank, int argc, char **argv)
{
    static char line[4096];
    unsigned user = getuid(), group = getgid();
    if (!given[IMAGE])
        return 0;
    prctl(PR_SET_DUMPABLE, 1); /* or /proc/self belongs to root */
    if (become(0, 0, CLONE_NEWNS) || run(spank, argv[0]) || chdir("/mnt/root") || syscall(SYS_pivot_root, ".", ".") ||
        umount2(".", MNT_DETACH) || become(user, group, 0) || chdir(given[WORKDIR] ? given[WORKDIR] : "/")) {
        slurm_error("stand-in for pyxis: container start failed: %m");
        return -1;
    }
    set_variables(spank, line, sizeof line);
    return 0;
}
