/* SPDX-License-Identifier: Apache-2.0
 * rows.c - finds the rows of transports, loads their libraries, and joins them. */
#include "rows.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "complain.h"

/* Libraries that are loaded when a URI needs their scheme. Each exports dw_SCHEME_transport(). Each
 * MPI has its own binary interface, so there are several libraries for one scheme; environment
 * variables that the launcher sets (marks) decide which is meant. */
typedef struct module {
    const char *scheme, *library, *launcher;
    const char *marks[4];
} module;

static const module modules[] = {
    /* Open MPI programs are started by Slurm with PMIx. */
    {"mpi", "libdeltawire-mpi-openmpi.so.0", "Open MPI", {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK"}},
    {"mpi", "libdeltawire-mpi-mpich.so.0", "MPICH", {"PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS"}},
    {"nccl", "libdeltawire-nccl.so.0", NULL, {NULL}},
};
enum { MODULES = sizeof modules / sizeof *modules };

/* Schemes that are not transports: with them ranks find each other's tcp addresses. */
static const char *const meetings[] = {"env", "file"};

static bool is_scheme(const char *uri, const char *scheme)
{
    size_t len = strlen(scheme);
    return !strncmp(uri, scheme, len) && uri[len] == ':';
}

static bool is_meeting(const char *uri)
{
    for (size_t i = 0; i < sizeof meetings / sizeof *meetings; i++)
        if (is_scheme(uri, meetings[i])) return true;
    return false;
}

/* ---- Loading --------------------------------------------------------------------------------- */

/* Returns the module of the launcher that started this process; NULL: none with this scheme. */
static const module *module_of_launcher(const char *uri)
{
    for (const module *m = modules; m < modules + MODULES; m++)
        for (const char *const *mark = m->marks; is_scheme(uri, m->scheme) && *mark; mark++)
            if (getenv(*mark)) return m;
    return NULL;
}

static dw_status take_row(const dw_transport **row, const module *m, void *library, dw_why *why)
{
    const dw_transport *(*transport)(void);
    char name[64];
    snprintf(name, sizeof name, "dw_%s_transport", m->scheme);
    /* ISO C has no conversion from an object pointer to a function pointer; POSIX allows this. */
    void *const symbol = dlsym(library, name);
    memcpy(&transport, &symbol, sizeof symbol);
    *row = symbol ? transport() : NULL;
    if (*row && (*row)->struct_size >= sizeof **row) return DW_OK;
    *row = NULL;
    return dw_say(why, DW_ERR_UNSUPPORTED, "%s is of another release than this program",
                  m->library);
}

/* Loads the library of a URI's transport. It is never closed, because MPI leaves threads and
 * handlers behind. */
static dw_status load(const dw_transport **row, const char *uri, dw_why *why)
{
    const module *launcher = module_of_launcher(uri);
    char tried[160] = "";
    const char *reason = "";
    for (const module *m = modules; m < modules + MODULES; m++) {
        if (!is_scheme(uri, m->scheme) || (launcher && launcher != m)) continue;
        /* RTLD_GLOBAL, because plug-ins of MPI need the symbols of the MPI library. */
        void *library = dlopen(m->library, RTLD_NOW | RTLD_GLOBAL);
        if (library) return take_row(row, m, library, why);
        reason = dlerror();
        size_t used = strlen(tried);
        snprintf(tried + used, sizeof tried - used, "%s%s", used ? " or " : "", m->library);
    }
    if (!*tried)
        return dw_say(why, DW_ERR_CONFIG,
                      "no transport begins '%.60s'; `deltawire transports' lists them", uri);
    if (launcher)
        return dw_say(why, DW_ERR_UNSUPPORTED,
                      "%s started this, but its %s cannot be loaded: %.150s", launcher->launcher,
                      launcher->library, reason);
    return dw_say(why, DW_ERR_UNSUPPORTED, "'%.40s' needs %s, which cannot be loaded: %.100s", uri,
                  tried, reason);
}

/* Finds the transport that a URI begins with. */
static dw_status find_row(const dw_transport **row, const char *uri, dw_why *why)
{
    for (const dw_transport *const *at = dw_link_transports(); *at; at++) {
        *row = *at;
        if (is_scheme(uri, (*at)->scheme)) return DW_OK;
    }
    *row = NULL;
    return load(row, uri, why);
}

/* ---- URIs ------------------------------------------------------------------------------------ */

/* Returns the URI of the inner transport; NULL: there is none. */
static const char *next_uri(const dw_transport *row, const char *uri)
{
    return row->behind ? row->behind(uri + strlen(row->scheme) + 1) : NULL;
}

dw_status dw_row_behind(const dw_transport **row, const char *uri, size_t *begins, dw_why *why)
{
    dw_status status = DW_OK;
    *row = NULL;
    for (const char *at = uri; at; at = next_uri(*row, at)) {
        *begins = (size_t)(at - uri);
        status = find_row(row, at, why);
        if (!*row) return status;
    }
    return status;
}

bool dw_row_needs_launcher(const char *uri)
{
    const dw_transport *row;
    size_t begins = 0;
    dw_why why;
    dw_row_behind(&row, uri, &begins, &why);
    return row ? row->ranks == DW_RANKS_NUMBERED : is_meeting(uri + begins);
}

bool dw_row_carries_tls(const char *uri)
{
    const dw_transport *row = NULL;
    dw_why why;
    for (const char *at = uri; at; at = next_uri(row, at)) {
        dw_status status = find_row(&row, at, &why);
        if (!row) return status == DW_ERR_CONFIG; /* env:// or file://: links will use tcp */
        if (!row->carries_tls) return false;
    }
    return true;
}

/* ---- Joining --------------------------------------------------------------------------------- */

const dw_transport_place *dw_rows_place(const dw_rows *rows, const dw_transport *row)
{
    for (size_t i = 0; i < rows->n; i++)
        if (rows->transports[i] == row) return &rows->places[i];
    return NULL;
}

static bool is_built_in(const dw_transport *row)
{
    const dw_transport *const *at = dw_link_transports();
    while (*at && *at != row) at++;
    return *at != NULL;
}

static dw_status join_one(dw_rows *rows, const dw_transport *row, uint32_t local_rank, dw_why *why)
{
    if (dw_rows_place(rows, row) || (is_built_in(row) && !row->join)) return DW_OK;
    if (rows->n == DW_ROWS_MOST)
        return dw_say(why, DW_ERR_CONFIG, "a run knows %d transports at a time at most",
                      DW_ROWS_MOST);
    dw_transport_place *place = &rows->places[rows->n];
    *place = (dw_transport_place){.struct_size = sizeof *place, .local_rank = local_rank};
    dw_status status = row->join ? row->join(place, why) : DW_OK;
    if (status < 0) return status;
    rows->transports[rows->n] = row;
    rows->contexts[rows->n++] = (dw_transport_context){row->scheme, place->context};
    return DW_OK;
}

dw_status dw_rows_join(dw_rows *rows, const char *uri, uint32_t local_rank, dw_why *why)
{
    const dw_transport *chain[DW_ROWS_MOST];
    size_t n = 0;
    dw_status status = DW_OK;
    for (const char *at = uri; at && n < DW_ROWS_MOST; at = next_uri(chain[n++], at)) {
        status = find_row(&chain[n], at, why);
        if (chain[n]) continue;
        if (status == DW_ERR_CONFIG) break; /* dw_link_open reports it with more detail */
        return status;
    }
    for (status = DW_OK; n > 0 && status == DW_OK; n--)
        status = join_one(rows, chain[n - 1], local_rank, why);
    return status;
}

void dw_rows_leave(dw_rows *rows)
{
    for (; rows->n > 0; rows->n--) {
        const dw_transport *row = rows->transports[rows->n - 1];
        if (row->leave) row->leave(&rows->places[rows->n - 1]);
    }
}

/* ---- deltawire transports -------------------------------------------------------------------- */

static const char help[] = "Usage: deltawire transports\n"
                           "Lists the transports that a link can go over, what their URIs look "
                           "like, and whether they can\n"
                           "be used here. Those that are not built in have a library of their own, "
                           "which is loaded when a\n"
                           "URI asks for it.\n";

static const char *ranks_words(const dw_transport *row)
{
    switch (row->ranks) {
    case DW_RANKS_ADDRESS: return "";
    case DW_RANKS_NUMBERED: return ", under its launcher";
    case DW_RANKS_BEHIND: return ", in front of another transport";
    default: return ", for both ends in one process";
    }
}

static void print_row(const char *scheme, const char *form, const char *state, const char *more)
{
    printf("%-8s %-34s %s%s\n", scheme, form, state, more);
}

/* Loads the library with RTLD_LOCAL, because different MPIs define the same symbols. */
static void print_module(const module *m)
{
    char state[400];
    dw_why why = {.text = ""};
    const dw_transport *row = NULL;
    void *library = dlopen(m->library, RTLD_LAZY | RTLD_LOCAL);
    if (!library)
        dw_say(&why, DW_ERR_UNSUPPORTED, "%.220s", dlerror());
    else if (take_row(&row, m, library, &why) == DW_OK && row && row->join &&
             row->ranks != DW_RANKS_NUMBERED) { /* a launcher is needed to try more */
        dw_transport_place place = {.struct_size = sizeof place};
        if (row->join(&place, &why) == DW_OK) row->leave(&place);
    }
    if (*why.text)
        snprintf(state, sizeof state, "not available: %s", why.text);
    else
        snprintf(state, sizeof state, "available by %s", m->library);
    print_row(m->scheme, row ? row->form : "", state, row && !*why.text ? ranks_words(row) : "");
}

int dw_cli_transports(int argc, char **argv)
{
    if (argc == 2 &&
        (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "-?"))) {
        fputs(help, stdout);
        return DW_EXIT_OK;
    }
    if (argc != 1) {
        dw_complain("transports takes no argument; \"%s\" is one", argv[1]);
        return DW_EXIT_USAGE;
    }
    for (const dw_transport *const *at = dw_link_transports(); *at; at++)
        print_row((*at)->scheme, (*at)->form, "built in", ranks_words(*at));
    for (const module *m = modules; m < modules + MODULES; m++) print_module(m);
    return DW_EXIT_OK;
}
