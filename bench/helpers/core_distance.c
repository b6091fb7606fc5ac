/* How long a message takes between two CPUs: two threads pass a number back and forth. For bench/svgd_cores.py. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

enum { ROUNDS = 20000 };
static _Atomic int turn;
static int second;

static void stay_on(int cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static void *answer(void *nothing) {
    stay_on(second);
    for (int round = 0; round < ROUNDS; round++) {
        while (atomic_load(&turn) != 1) {
        }
        atomic_store(&turn, 0);
    }
    return nothing;
}

/* Nanoseconds for there and back. */
double there_and_back(int cpu, int other) {
    struct timespec begin, end;
    cpu_set_t before;
    pthread_t thread;

    sched_getaffinity(0, sizeof before, &before);
    turn = 0;
    second = other;
    if (pthread_create(&thread, 0, answer, 0))
        return -1;
    stay_on(cpu);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int round = 0; round < ROUNDS; round++) {
        atomic_store(&turn, 1);
        while (atomic_load(&turn) != 0) {
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    pthread_join(thread, 0);
    sched_setaffinity(0, sizeof before, &before);
    return ((end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec)) / ROUNDS;
}
