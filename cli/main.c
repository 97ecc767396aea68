/* SPDX-License-Identifier: Apache-2.0
 * main.c - the `deltawire` program: finds the subcommand. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "keys.h"

static const char help[] = "Usage: deltawire COMMAND [OPTION...]\n"
                           "Makes distributed training fit a slow network.\n"
                           "\n"
                           "Commands:\n"
                           "  train      train a small language model as a pipeline of processes\n"
                           "  inspect    explain a frame or a reply\n"
                           "  keygen     make the key that keeps strangers out of a run\n"
                           "\n"
                           "  deltawire COMMAND --help tells the options of a command.\n"
                           "  deltawire --version      tells the version.\n";

void dw_complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("deltawire: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

int dw_exit_code(dw_status status)
{
    if (status >= 0) return DW_EXIT_OK;
    return status == DW_ERR_ARGUMENT || status == DW_ERR_CONFIG ? DW_EXIT_USAGE : DW_EXIT_FAILED;
}

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";
    if (!strcmp(command, "train")) return dw_cli_train(argc - 1, argv + 1);
    if (!strcmp(command, "inspect")) return dw_cli_inspect(argc - 1, argv + 1);
    if (!strcmp(command, "keygen")) return dw_cli_keygen(argc - 1, argv + 1);
    if (!strcmp(command, "--help") || !strcmp(command, "-h") || !strcmp(command, "help")) {
        fputs(help, stdout);
        return DW_EXIT_OK;
    }
    if (!strcmp(command, "--version")) {
        printf("deltawire %s\n", dw_version());
        return DW_EXIT_OK;
    }
    if (*command)
        dw_complain("no command is called \"%s\"; there are train, inspect and keygen", command);
    else
        fputs(help, stderr);
    return DW_EXIT_USAGE;
}
