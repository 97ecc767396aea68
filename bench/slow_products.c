/* SPDX-License-Identifier: Apache-2.0
 * slow_products.c - makes the matrix products of a program take the time that a processor of a
 * given speed would need for them, without keeping a core busy. So several simulated processors fit
 * on a machine with few cores. For LD_PRELOAD; DW_GFLOPS is the speed in 10^9 operations per
 * second.
 *
 * Each product is computed as ever. The difference to the simulated time is slept, when enough of
 * it has come together. One thread computes. */
#include <cblas.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

typedef void sgemm(CBLAS_ORDER order, CBLAS_TRANSPOSE transpose_a, CBLAS_TRANSPOSE transpose_b,
                   blasint m, blasint n, blasint k, float alpha, const float *a, blasint lda,
                   const float *b, blasint ldb, float beta, float *c, blasint ldc);

enum { LEAST_NAP_NS = 200000 };

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

__attribute__((visibility("default"))) void
cblas_sgemm(CBLAS_ORDER order, CBLAS_TRANSPOSE transpose_a, CBLAS_TRANSPOSE transpose_b, blasint m,
            blasint n, blasint k, float alpha, const float *a, blasint lda, const float *b,
            blasint ldb, float beta, float *c, blasint ldc)
{
    static sgemm *real;
    static double ns_each;  /* of one operation */
    static int64_t owed_ns; /* that the products so far should have taken longer */
    int64_t since = now_ns();
    if (!real) {
        const char *speed = getenv("DW_GFLOPS");
        *(void **)&real = dlsym(RTLD_NEXT, "cblas_sgemm");
        if (!real || !speed || !(strtod(speed, NULL) > 0)) abort();
        ns_each = 1 / strtod(speed, NULL);
    }
    real(order, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    owed_ns += (int64_t)(2.0 * m * n * k * ns_each) - (now_ns() - since);
    if (owed_ns < LEAST_NAP_NS) return;
    since = now_ns();
    struct timespec nap = {.tv_sec = owed_ns / 1000000000, .tv_nsec = owed_ns % 1000000000};
    nanosleep(&nap, NULL);
    owed_ns -= now_ns() - since;
}
