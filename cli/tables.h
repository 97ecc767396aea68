/* SPDX-License-Identifier: Apache-2.0
 * tables.h - prints the figures of tensors and codecs: as tables, as JSON, and as a picture. */
#ifndef DW_CLI_TABLES_H
#define DW_CLI_TABLES_H

#include <stdio.h>

#include "figures.h"

/* Print a tensor, with the figures of n codecs; or that it is left out, and why. */
void dw_table_print(const dw_subject *subject, const dw_chosen_codec *codecs,
                    const dw_figures *figures, size_t n);
void dw_table_print_left_out(const char *file, const dw_file_tensor *tensor);

/* The same as elements of a list of JSON. */
void dw_json_print(const dw_subject *subject, const dw_chosen_codec *codecs,
                   const dw_figures *figures, size_t n);
void dw_json_print_left_out(const char *file, const dw_file_tensor *tensor);

/* A picture of error against bits, with a panel for each tensor. begin and end write what stands
 * around n panels; panel writes the i-th one. Errors of the file are left to ferror. */
enum { DW_PICTURE_PANELS = 12 };
void dw_picture_begin(FILE *file, size_t panels, size_t codecs);
void dw_picture_panel(FILE *file, size_t i, const char *title, const dw_chosen_codec *codecs,
                      const dw_figures *figures, size_t n);
void dw_picture_end(FILE *file);

#endif
