/* SPDX-License-Identifier: Apache-2.0
 * symbols.h - fills a struct of function pointers with the functions of a library that was opened
 * at run time. */
#ifndef DW_SYMBOLS_H
#define DW_SYMBOLS_H

#include <stddef.h>
#include <string.h>

/* A function of the library: its name, and the offset of its pointer in the struct. */
typedef struct dw_symbol {
    const char *name;
    size_t offset;
} dw_symbol;

/* Looks up all n symbols and stores their addresses in *table. Returns NULL, or the name of the
 * first symbol that the library does not have. `find` is dlsym; it is an argument because src/ does
 * not call the operating system. */
static inline const char *dw_symbols_load(void *table, const dw_symbol *symbols, size_t n,
                                          void *library, void *(*find)(void *, const char *))
{
    for (size_t i = 0; i < n; i++) {
        void *address = find(library, symbols[i].name);
        if (!address) return symbols[i].name;
        /* ISO C has no conversion from an object pointer to a function pointer. */
        memcpy((unsigned char *)table + symbols[i].offset, &address, sizeof address);
    }
    return NULL;
}

#endif
