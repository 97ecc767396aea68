/* SPDX-License-Identifier: Apache-2.0
 * native.c - memory with a count of its owners, its export through DLPack, and a clock. */
#include "native.h"

#include <stdlib.h>

#include "base/clock.h"

enum { ALIGNMENT = 64, DL_CPU = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_MAJOR = 1, DL_MINOR = 0 };

/* Precedes the memory. */
typedef struct head {
    uint64_t owners; /* atomic */
    unsigned char padding[ALIGNMENT - sizeof(uint64_t)];
} head;

static head *head_of(void *memory)
{
    return (head *)memory - 1;
}

void *dw_memory_create(size_t bytes)
{
    if (bytes > PTRDIFF_MAX - 2 * ALIGNMENT) return NULL;
    head *made = aligned_alloc(ALIGNMENT, (bytes + 2 * ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    if (!made) return NULL;
    made->owners = 1;
    return made + 1;
}

void dw_memory_drop(void *memory)
{
    if (memory && __atomic_sub_fetch(&head_of(memory)->owners, 1, __ATOMIC_ACQ_REL) == 0)
        free(head_of(memory));
}

/* An export of either kind, with the shape and strides that it points to. */
typedef struct lent {
    union {
        dw_dl_managed managed;
        dw_dl_versioned versioned;
    } as;
    int64_t shape[3], strides[3];
} lent;

static void end_managed(dw_dl_managed *self)
{
    dw_memory_drop(self->context);
    free(self);
}

static void end_versioned(dw_dl_versioned *self)
{
    dw_memory_drop(self->context);
    free(self);
}

void *dw_memory_export(void *memory, dw_dtype dtype, uint32_t n, uint32_t t, uint32_t c,
                       int versioned)
{
    lent *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    made->shape[0] = n, made->shape[1] = t, made->shape[2] = c;
    made->strides[0] = (int64_t)t * c, made->strides[1] = c, made->strides[2] = 1;
    dw_dl_tensor tensor = {.data = memory,
                           .device_type = DL_CPU,
                           .ndim = 3,
                           .type_code = dtype == DW_BF16 ? DL_BFLOAT : DL_FLOAT,
                           .type_bits = dtype == DW_F32 ? 32 : 16,
                           .type_lanes = 1,
                           .shape = made->shape,
                           .strides = made->strides};
    if (versioned)
        made->as.versioned = (dw_dl_versioned){.major = DL_MAJOR,
                                               .minor = DL_MINOR,
                                               .context = memory,
                                               .deleter = end_versioned,
                                               .tensor = tensor};
    else
        made->as.managed =
            (dw_dl_managed){.tensor = tensor, .context = memory, .deleter = end_managed};
    __atomic_add_fetch(&head_of(memory)->owners, 1, __ATOMIC_RELAXED);
    return made;
}

const char *dw_capsule_name(int versioned)
{
    return versioned ? "dltensor_versioned" : "dltensor";
}

/* Functions of the Python interpreter that has loaded this library. They need the interpreter
 * lock, which the interpreter holds when it calls the destructor of a capsule. */
static int (*is_valid)(void *capsule, const char *name);
static void *(*get_pointer)(void *capsule, const char *name);

void dw_capsule_functions(void *valid, void *pointer)
{
    is_valid = (int (*)(void *, const char *))(uintptr_t)valid;
    get_pointer = (void *(*)(void *, const char *))(uintptr_t)pointer;
}

/* Whoever takes the tensor out of a capsule renames the capsule and calls the deleter later. */
void dw_capsule_end(void *capsule)
{
    if (is_valid(capsule, dw_capsule_name(0))) {
        dw_dl_managed *managed = get_pointer(capsule, dw_capsule_name(0));
        managed->deleter(managed);
    } else if (is_valid(capsule, dw_capsule_name(1))) {
        dw_dl_versioned *versioned = get_pointer(capsule, dw_capsule_name(1));
        versioned->deleter(versioned);
    }
}

dw_status dw_capsule_view(dw_dlpack_view *view, void *capsule, unsigned flags, dw_why *why)
{
    for (int versioned = 1; versioned >= 0; versioned--) {
        const char *name = dw_capsule_name(versioned);
        if (!is_valid(capsule, name)) continue;
        if (versioned) flags |= DW_DLPACK_VERSIONED;
        return dw_tensor_from_dlpack(view, get_pointer(capsule, name), flags, NULL, why);
    }
    *why = (dw_why){.text = "__dlpack__ must return an unused DLPack capsule"};
    return DW_ERR_ARGUMENT;
}

dw_status dw_exchange_view(dw_dlpack_view *view, const dw_dl_exchange *exchange, void *object,
                           unsigned flags, dw_why *why)
{
    if (exchange->major != DL_MAJOR || !exchange->tensor_from_object) {
        *why = (dw_why){.text = "the DLPackExchangeAPI of this type is of another version than 1"};
        return DW_ERR_UNSUPPORTED;
    }
    dw_dl_managed managed = {.tensor = {.data = NULL}};
    if (exchange->tensor_from_object(object, &managed.tensor) != 0) {
        *why = (dw_why){.text = "the framework refused to export this tensor"};
        return DW_ERR_ARGUMENT;
    }
    return dw_tensor_from_dlpack(view, &managed, flags, NULL, why);
}

int dw_tensor_meets(const dw_tensor *tensor, const void *from, size_t bytes)
{
    uintptr_t start = (uintptr_t)tensor->data, other = (uintptr_t)from;
    uint64_t elements = (tensor->n - 1) * (uint64_t)tensor->stride_n +
                        (tensor->t - 1) * (uint64_t)tensor->stride_t + tensor->c;
    return start < other + bytes && other < start + elements * dw_dtype_bytes(tensor->dtype);
}

uint64_t dw_clock_ns(void *context)
{
    return dw_host_now_ns(context);
}
