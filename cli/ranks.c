/* SPDX-License-Identifier: Apache-2.0
 * ranks.c - loads libdeltawire-mpi when --link mpi:// asks for it, so that other runs need no MPI.
 */
#include "ranks.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "complain.h"
#include "deltawire/mpi.h"

struct dw_ranks {
    dw_mpi *mpi;
    void (*destroy)(dw_mpi *mpi);
    const dw_transport *transports[2];
    dw_transport_context contexts[2];
};

/* Each MPI has a binary interface of its own, so there is a library for each. */
static const struct {
    const char *name, *library;
    /* Variables that its launcher sets; Slurm's PMIx is Open MPI's way of starting. */
    const char *marks[4];
} kinds[] = {
    {"Open MPI", "libdeltawire-mpi-openmpi.so.0", {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", NULL}},
    {"MPICH", "libdeltawire-mpi-mpich.so.0", {"PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", NULL}}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* The MPI whose launcher started this process; KINDS: none of them. */
static size_t kind_of_launcher(void)
{
    for (size_t kind = 0; kind < KINDS; kind++)
        for (const char *const *mark = kinds[kind].marks; *mark; mark++)
            if (getenv(*mark)) return kind;
    return KINDS;
}

static void *load(dw_why *why)
{
    size_t launcher = kind_of_launcher();
    void *library = NULL;
    for (size_t kind = 0; kind < KINDS && !library; kind++) {
        if (launcher != KINDS && launcher != kind) continue;
        /* Its plug-ins look for the symbols of the library that loads them. */
        library = dlopen(kinds[kind].library, RTLD_NOW | RTLD_GLOBAL);
    }
    if (library) return library;
    const char *reason = dlerror();
    if (launcher == KINDS)
        dw_fail(why, DW_ERR_UNSUPPORTED,
                "mpi:// needs libdeltawire-mpi-openmpi or -mpich, which cannot be loaded: %.150s",
                reason);
    else
        dw_fail(why, DW_ERR_UNSUPPORTED, "%s started this, but its %s cannot be loaded: %.150s",
                kinds[launcher].name, kinds[launcher].library, reason);
    return NULL;
}

/* ISO C knows no way from an object pointer to a function; POSIX says that this one works. */
static bool find(void *library, const char *name, void *function)
{
    void *const symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

dw_status dw_ranks_open(dw_ranks **ranks, uint32_t *rank, uint32_t *stages, dw_why *why)
{
    dw_status (*create)(dw_mpi **, const void *, dw_why *);
    int (*rank_of)(const dw_mpi *), (*size_of)(const dw_mpi *);
    const dw_transport *(*transport)(void);
    *ranks = NULL;
    void *library = load(why); /* never closed: MPI leaves threads and handlers behind */
    if (!library) return DW_ERR_UNSUPPORTED;
    dw_ranks *made = calloc(1, sizeof *made);
    if (!made) return dw_fail(why, DW_ERR_NO_MEMORY, "out of memory");
    if (!find(library, "dw_mpi_create", &create) ||
        !find(library, "dw_mpi_destroy", &made->destroy) ||
        !find(library, "dw_mpi_rank", &rank_of) || !find(library, "dw_mpi_size", &size_of) ||
        !find(library, "dw_mpi_transport", &transport)) {
        free(made);
        return dw_fail(why, DW_ERR_UNSUPPORTED, "libdeltawire-mpi is of another release");
    }
    dw_status status = create(&made->mpi, NULL, why);
    if (status < 0) {
        free(made);
        return status;
    }
    made->transports[0] = transport();
    made->contexts[0] = (dw_transport_context){"mpi", made->mpi};
    *rank = (uint32_t)rank_of(made->mpi);
    *stages = (uint32_t)size_of(made->mpi);
    *ranks = made;
    return DW_OK;
}

const dw_transport *const *dw_ranks_transports(const dw_ranks *ranks)
{
    return ranks->transports;
}

const dw_transport_context *dw_ranks_contexts(const dw_ranks *ranks)
{
    return ranks->contexts;
}

void dw_ranks_close(dw_ranks *ranks)
{
    if (!ranks) return;
    ranks->destroy(ranks->mpi);
    free(ranks);
}
