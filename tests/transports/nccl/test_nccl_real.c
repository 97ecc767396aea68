/* SPDX-License-Identifier: Apache-2.0
 * test_nccl_real.c - what can be tested of an installed NCCL without a GPU: its symbols, its
 * version, its unique ids, and that our declarations of its types are right. Exits 77 if there is
 * none. */
#include <dlfcn.h>

#include "transports/suite/transport_suite.h"

#include "deltawire/nccl.h"
#include "nccl/nccl_library.h"

/* NCCL's own header, if it and CUDA's headers are installed. */
#if defined(__has_include)
#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#define SAME_PLACE(theirs, ours)                                                                   \
    _Static_assert(offsetof(ncclConfig_t, theirs) == offsetof(dw_nccl_config, ours), #ours)
SAME_PLACE(size, size);
SAME_PLACE(magic, magic);
SAME_PLACE(version, version);
SAME_PLACE(blocking, blocking);
SAME_PLACE(cgaClusterSize, cga_cluster_size);
SAME_PLACE(minCTAs, min_ctas);
SAME_PLACE(maxCTAs, max_ctas);
SAME_PLACE(netName, net_name);
SAME_PLACE(splitShare, split_share);
_Static_assert(sizeof(ncclUniqueId) == sizeof(dw_nccl_id), "unique id");
_Static_assert((int)ncclUint8 == DW_NCCL_UINT8 && (int)ncclInProgress == DW_NCCL_IN_PROGRESS &&
                   (int)ncclRemoteError == DW_NCCL_REMOTE_ERROR,
               "numbers");
#endif
#endif

static dw_nccl_library library;
static void *loaded;

TEST(has_every_symbol_and_is_new_enough)
{
    int version = 0;
    assert_int_equal(library.get_version(&version), DW_NCCL_SUCCESS);
    assert_int_equal(version, library.version);
    assert_true(version >= DW_NCCL_OLDEST && version < 100000);
    print_message("NCCL %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
}

TEST(nccl_already_loaded_by_the_program_is_used)
{
    void *theirs = dlsym(loaded, "ncclGetVersion"), *ours;
    memcpy(&ours, &library.get_version, sizeof ours);
    assert_ptr_equal(ours, theirs);
}

TEST(unique_ids_are_unique)
{
    dw_nccl_id id[2];
    for (int i = 0; i < 2; i++) {
        int error = library.get_id(&id[i]);
        if (error == DW_NCCL_SYSTEM_ERROR) skip(); /* there is no network interface */
        assert_int_equal(error, DW_NCCL_SUCCESS);
    }
    assert_true(memcmp(&id[0], &id[1], sizeof id[0]) != 0);
}

TEST(errors_have_texts)
{
    assert_string_not_equal(dw_nccl_library_error(&library, NULL, DW_NCCL_SYSTEM_ERROR), "");
}

TEST(without_a_gpu_the_error_says_why)
{
    dw_nccl *nccl;
    dw_why why;
    dw_status status = dw_nccl_create(&nccl, NULL, &why);
    if (status == DW_OK) {
        dw_nccl_destroy(nccl);
        return;
    }
    assert_int_equal(status, DW_ERR_UNSUPPORTED);
    assert_string_not_equal(why.text, "");
}

int main(void)
{
    dw_why why;
    /* Loads NCCL as a framework does, without making its symbols visible to others. */
    loaded = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    dw_status status = dw_nccl_library_open(&library, NULL, &why);
    if (!loaded && status == DW_ERR_UNSUPPORTED) {
        fprintf(stderr, "skipped: %s\n", why.text);
        return 77;
    }
    if (status != DW_OK) return fprintf(stderr, "%s\n", why.text);
    return test_run(NULL, NULL);
}
