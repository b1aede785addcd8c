/* Counts how often threads of this process release CPython's GIL, and their CPU time while they hold it; for host_cost.py.
 *
 * Preloaded before the C library. take_gil() signals one condition variable and drop_gil() another (ceval_gil.h, CPython
 * 3.10 to 3.13), both with the GIL's mutex held, so only one thread at a time changes the counters. The first variable
 * that the process signals is take_gil()'s. Other condition variables (thread pools, queues) have other addresses.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

static pthread_cond_t *dropped, *taken;
static long drops;
static double held_s, since_s;

static double cpu_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

int pthread_cond_signal(pthread_cond_t *condition) {
    static int (*signal)(pthread_cond_t *);
    if (!signal) signal = (int (*)(pthread_cond_t *))dlvsym(RTLD_NEXT, "pthread_cond_signal", "GLIBC_2.3.2");
    if (!taken) taken = condition;
    else if (!dropped && condition != taken) dropped = condition;
    if (condition == dropped) {
        drops++;
        held_s += cpu_s() - since_s;
    } else if (condition == taken) {
        since_s = cpu_s();
    }
    return signal(condition);
}

void probe_start(void) { drops = 0; held_s = 0; since_s = cpu_s(); }
long probe_drops(void) { return drops; }
double probe_held_s(void) { return held_s + cpu_s() - since_s; }
