/* SPDX-License-Identifier: Apache-2.0
 * environment.c - what launchers put into the environment of a rank. */
#include "environment.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "complain.h"

enum { DEFAULT_PORT = 29500 }; /* torch's */

/* The first one counts whose two variables are both set. mpirun stands before Slurm: in a batch job
 * that calls mpirun the variables of both are set, and those of Slurm describe the batch script. */
static const struct {
    const char *by, *rank, *size, *local;
} launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"}};

static int complain(dw_why *why, const char *name, const char *value)
{
    dw_say(why, DW_ERR_ARGUMENT,
           "the environment variable %s is \"%.60s\", which is not a valid number", name, value);
    return -1;
}

static int read_number(const char *name, unsigned long most, uint32_t *number, dw_why *why)
{
    const char *value = getenv(name);
    char *end;
    errno = 0;
    if (!value) value = "";
    unsigned long read = strtoul(value, &end, 10);
    if (*value < '0' || *value > '9' || *end || errno || read > most)
        return complain(why, name, value);
    *number = (uint32_t)read;
    return 0;
}

/* The first host of a list of Slurm: of "node[03-07,12],other" it is "node03". */
static void first_host(const char *list, char *host, size_t cap)
{
    size_t stem = strcspn(list, "[,");
    const char *rest = list + stem;
    size_t digits = *rest == '[' ? strspn(rest + 1, "0123456789") : 0;
    /* In "rack[1-2]-node7" the name goes on after the bracket. */
    size_t tail = *rest == '[' ? strcspn(rest, "]") + 1 : 0;
    size_t more = tail && rest[tail - 1] == ']' ? strcspn(rest + tail, "[,") : 0;
    snprintf(host, cap, "%.*s%.*s%.*s", (int)stem, list, (int)digits, rest + 1, (int)more,
             more ? rest + tail : "");
}

static int read_master(dw_launch *launch, dw_why *why)
{
    const char *host = getenv("MASTER_ADDR"), *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    const char *nodes = getenv("SLURM_STEP_NODELIST");
    if (!nodes) nodes = getenv("SLURM_JOB_NODELIST");
    if (host)
        snprintf(launch->host, sizeof launch->host, "%s", host);
    else if (nodes)
        first_host(nodes, launch->host, sizeof launch->host);
    launch->port = DEFAULT_PORT;
    if (getenv("MASTER_PORT") && read_number("MASTER_PORT", 65534, &launch->port, why)) return -1;
    /* The agent of torchrun may itself listen on that port. All ranks see this variable and use the
     * next port. */
    if (agent && !strcmp(agent, "True")) launch->port++;
    return 0;
}

int dw_read_environment(dw_launch *launch, dw_why *why)
{
    *launch = (dw_launch){.by = NULL};
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers && !launch->by; i++) {
        if (!getenv(launchers[i].rank) || !getenv(launchers[i].size)) continue;
        launch->by = launchers[i].by;
        if (read_number(launchers[i].rank, INT32_MAX, &launch->rank, why) ||
            read_number(launchers[i].size, INT32_MAX, &launch->stages, why) ||
            (getenv(launchers[i].local) &&
             read_number(launchers[i].local, INT32_MAX, &launch->local_rank, why)))
            return -1;
        if (launch->rank >= launch->stages) {
            dw_say(why, DW_ERR_ARGUMENT,
                   "the environment variables say %s=%u and %s=%u; ranks are counted from 0, so "
                   "the rank must be the smaller number",
                   launchers[i].rank, launch->rank, launchers[i].size, launch->stages);
            return -1;
        }
    }
    return read_master(launch, why);
}
