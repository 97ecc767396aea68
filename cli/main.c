/* SPDX-License-Identifier: Apache-2.0
 * main.c - the `deltawire` program: finds the subcommand. */
#include <stdio.h>
#include <string.h>

#include "complain.h"
#include "deltawire/deltawire.h"
#include "inspect.h"
#include "keys.h"
#include "train.h"

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
