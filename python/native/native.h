/* SPDX-License-Identifier: Apache-2.0
 * native.h - the C functions that the Python package needs: memory that several owners share
 * through DLPack, access to DLPack capsules, calls on a GPU, and a clock. The library is not linked
 * with Python, so every version of Python can load it. */
#ifndef DW_PYTHON_NATIVE_H
#define DW_PYTHON_NATIVE_H

#include "deltawire/cuda.h"

/* The structs DLTensor, DLManagedTensor and DLManagedTensorVersioned of dmlc/dlpack's dlpack.h. A
 * capsule with the name "dltensor" holds the second, "dltensor_versioned" the third. */
typedef struct dw_dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t type_code, type_bits;
    uint16_t type_lanes;
    int64_t *shape, *strides; /* strides count elements; NULL means contiguous */
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

/* Memory with a count of its owners: the Tensor that created it, and each DLPack export of it. It
 * is freed when the last owner drops it. It is aligned to 64 bytes and not cleared.
 * dw_memory_create returns NULL if there is not enough memory. Threads: any. */
DW_API void *dw_memory_create(size_t bytes);
DW_API void dw_memory_drop(void *memory); /* NULL does nothing */

/* Exports such memory as a contiguous tensor (n, t, c): a dw_dl_versioned if versioned is not 0,
 * else a dw_dl_managed. The export owns the memory, too, until its deleter is called. Returns NULL
 * if there is not enough memory. */
DW_API void *dw_memory_export(void *memory, dw_dtype dtype, uint32_t n, uint32_t t, uint32_t c,
                              int versioned);

/* The name and the destructor of a capsule that holds such an export. The destructor calls the
 * deleter unless somebody has taken the export. dw_capsule_functions must be called once, before
 * the first capsule is made, with Python's functions PyCapsule_IsValid and PyCapsule_GetPointer. */
DW_API const char *dw_capsule_name(int versioned);
DW_API void dw_capsule_functions(void *is_valid, void *get_pointer);
DW_API void dw_capsule_end(void *capsule);

/* Calls dw_tensor_from_dlpack for the tensor in a capsule of either name. The capsule goes
 * on owning the tensor. The caller must hold the interpreter lock (GIL). Errors: those of that
 * function, and ARGUMENT if this is no such capsule, or somebody has taken its tensor. */
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

/* Returns 1 if the memory of a tensor overlaps the given bytes, else 0. */
DW_API int dw_tensor_meets(const dw_tensor *tensor, const void *from, size_t bytes);

/* What a call on a GPU works with.
 *
 * | name   | memory | meaning                                                                    |
 * | stream |        | work is enqueued here; the memory of x and y is ready in its order         |
 * | room   | pinned | dw_cuda_pin made it; cap bytes. The frame is written or read here          |
 *
 * Each call enqueues the work, waits for it and finishes the ticket. So an interrupt from the
 * keyboard, which Python handles between two calls, cannot leave a frame in flight. */
typedef struct dw_device_call {
    dw_cuda *cuda;
    void *stream;
    void *room;
    size_t cap;
} dw_device_call;

/* Like dw_encode, dw_encoder_resync and dw_decode, for encoders and decoders on a GPU. They
 * wait for the work, whatever happens. decode copies the frame, of len bytes in any host memory,
 * into room. *why gets the sentence of an error. Errors: those of the functions with _async in
 * cuda.h; IO: the GPU failed; BUFFER_TOO_SMALL (decode: cap is less than len). After an error, y is
 * undefined, but nothing else has changed. After IO, frames may stay in flight, and the object can
 * only be destroyed. */
DW_API dw_status dw_encode_on_device(const dw_device_call *call, dw_encoder *encoder,
                                     const dw_key *keys, const dw_tensor *x, size_t *len,
                                     dw_why *why);
DW_API dw_status dw_resync_on_device(const dw_device_call *call, dw_encoder *encoder,
                                     const dw_key *keys, uint32_t n, size_t *len, dw_why *why);
DW_API dw_status dw_decode_on_device(const dw_device_call *call, dw_decoder *decoder,
                                     const void *frame, size_t len, const dw_tensor *y, void *reply,
                                     size_t reply_cap, size_t *reply_len, dw_why *why);

/* The time of a monotonic clock in nanoseconds: the function now_ns of a dw_config. */
DW_API uint64_t dw_clock_ns(void *context);

#endif
