/* SPDX-License-Identifier: Apache-2.0
 * tensor_file.h - reads the tensors of .safetensors and .npy files, and trusts nothing in them.
 *
 * A file is told by its first bytes, not by its name. Before anything of a file is used, all of
 * its header is checked. In a .safetensors file, every byte behind the header must belong to
 * exactly one tensor. A .npy file must have as many bytes as its shape asks for. No number in a
 * file decides how much memory is allocated: it is at most about ten times the size of the header,
 * which is at most 100 MB, and then the size of one tensor, whose bytes the file has. */
#ifndef DW_CLI_TENSOR_FILE_H
#define DW_CLI_TENSOR_FILE_H

#include "deltawire/deltawire.h"

enum { DW_FILE_DIMS = 16 }; /* the most dimensions of a tensor */

typedef struct dw_file_tensor {
    const char *name; /* all of its characters can be printed; "" in a .npy file */
    const char *type; /* the word for its dtype that stands in the file */
    dw_dtype dtype;
    const char *left_out; /* NULL, or why it cannot be measured; dtype, n, t and c then say nothing
                           */
    uint64_t dims[DW_FILE_DIMS];
    size_t n_dims;
    uint32_t n, t, c;    /* the shape as one of the library; more dimensions are joined in n */
    uint64_t begin, end; /* its bytes in the file */
} dw_file_tensor;

typedef struct dw_tensor_file {
    int fd;
    char *header;
    uint64_t bytes;          /* of the file */
    dw_file_tensor *tensors; /* (n), in the order of their bytes */
    size_t n;
} dw_tensor_file;

/* Opens a file and reads its header. Errors: IO, NO_MEMORY, FORMAT (what is wrong with the file),
 * with a sentence in *why that does not name the file. *file then needs no closing. */
dw_status dw_tensor_file_open(dw_tensor_file *file, const char *path, dw_why *why);
void dw_tensor_file_close(dw_tensor_file *file);

/* Reads the values of a tensor that is not left out to data, which has room for end - begin bytes,
 * in the byte order of this machine. Errors: IO. */
dw_status dw_tensor_file_read(const dw_tensor_file *file, const dw_file_tensor *tensor, void *data,
                              dw_why *why);

#endif
