/* SPDX-License-Identifier: Apache-2.0
 * native.h - the C that the Python package needs of its own: memory that tensors of several owners
 * share through DLPack, and a clock. No function of Python is linked: any version can load it. */
#ifndef DW_PYTHON_NATIVE_H
#define DW_PYTHON_NATIVE_H

#include "deltawire/deltawire.h"

/* DLTensor of dmlc/dlpack's dlpack.h, and what a capsule holds: "dltensor" the first, and
 * "dltensor_versioned" the second. */
typedef struct dw_dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t type_code, type_bits;
    uint16_t type_lanes;
    int64_t *shape, *strides; /* strides, of elements, may be NULL: dense */
    uint64_t byte_offset;
} dw_dl_tensor;

typedef struct dw_dl_managed {
    dw_dl_tensor tensor;
    void *context;
    void (*deleter)(struct dw_dl_managed *self);
} dw_dl_managed;

typedef struct dw_dl_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dw_dl_versioned *self);
    uint64_t flags;
    dw_dl_tensor tensor;
} dw_dl_versioned;

/* Memory that goes when its last owner has dropped it: the Tensor that asked for it, and whoever
 * took it through DLPack. Aligned to 64 bytes; not cleared. NULL: no memory. Threads: any. */
DW_API void *dw_memory_create(size_t bytes);
DW_API void dw_memory_drop(void *memory); /* NULL is fine */

/* A dw_dl_managed, or, where versioned is not 0, a dw_dl_versioned, of such memory as a dense
 * (n, t, c), an owner of it until its deleter was called. NULL: no memory. */
DW_API void *dw_memory_export(void *memory, dw_dtype dtype, uint32_t n, uint32_t t, uint32_t c,
                              int versioned);

/* The name and the destructor of a capsule with such a thing. The destructor calls the deleter
 * where nobody has taken it. Python's functions are given once, before the first capsule:
 * PyCapsule_IsValid and PyCapsule_GetPointer. */
DW_API const char *dw_capsule_name(int versioned);
DW_API void dw_capsule_functions(void *is_valid, void *get_pointer);
DW_API void dw_capsule_end(void *capsule);

/* As dw_tensor_from_dlpack_managed, of what a capsule of either name holds, which stays the
 * capsule's. Called while the interpreter's lock is held. ARGUMENT also: not such a capsule, or
 * somebody has taken what it held. */
DW_API dw_status dw_capsule_view(dw_dlpack_view *view, void *capsule, unsigned flags, dw_why *why);

/* The head and the functions of DLPackExchangeAPI (dlpack.h since 1.3), by which a framework gives
 * a view of its tensor without Python code. It is the content of a capsule "dlpack_exchange_api",
 * the attribute __dlpack_c_exchange_api__ of the tensor's type. */
typedef struct dw_dl_exchange {
    uint32_t major, minor;
    struct dw_dl_exchange *older;
    void (*allocator)(void);
    void (*managed_from_object)(void);
    void (*managed_to_object)(void);
    int (*tensor_from_object)(void *object, dw_dl_tensor *tensor); /* may be NULL */
    void (*current_stream)(void);
} dw_dl_exchange;

/* Like dw_capsule_view, for an object of exactly the type to which `exchange` belongs. The view is
 * valid while the object and its shape exist. Called with the interpreter lock (GIL) held. Errors
 * also: ARGUMENT, with an exception of Python (the framework refused); UNSUPPORTED: exchange is of
 * another major version than 1, or has no such function. */
DW_API dw_status dw_exchange_view(dw_dlpack_view *view, const dw_dl_exchange *exchange,
                                  void *object, unsigned flags, dw_why *why);

/* Whether a tensor's elements and so many bytes have memory in common. */
DW_API int dw_tensor_meets(const dw_tensor *tensor, const void *from, size_t bytes);

/* Nanoseconds of a clock that only goes forward: now_ns of a config. */
DW_API uint64_t dw_clock_ns(void *context);

#endif
