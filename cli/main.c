/* SPDX-License-Identifier: Apache-2.0
 * main.c - the `deltawire` program: runs the subcommand that the first argument names. */
#include <stdio.h>
#include <string.h>

#include "advise.h"
#include "complain.h"
#include "deltawire/deltawire.h"
#include "inspect.h"
#include "keys.h"
#include "measure_options.h"
#include "rows.h"
#include "train.h"

static const char help[] =
    "Usage: deltawire COMMAND [OPTION...]\n"
    "Compresses what distributed training sends over slow networks.\n"
    "\n"
    "Commands:\n"
    "  train      train a small language model as a pipeline of processes\n"
    "  advise     predict which codecs make a training fast on a link\n"
    "  measure    measure codecs on tensors of your own\n"
    "  inspect    print what a frame or a reply of the deltawire format contains\n"
    "  keygen     create the secret key that the ranks of a run share\n"
    "  transports list what a link can go over, and whether it can be used here\n"
    "\n"
    "Options:\n"
    "  --help     print this text\n"
    "  --version  print the version\n"
    "\n"
    "`deltawire COMMAND --help' describes the options of a command.\n"
    "Exit status: 0 success, 1 failure, 2 wrong usage, 128 + N stopped by signal N.\n";

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {{"train", dw_cli_train},     {"advise", dw_cli_advise},
                {"measure", dw_cli_measure}, {"inspect", dw_cli_inspect},
                {"keygen", dw_cli_keygen},   {"transports", dw_cli_transports}};

static int run_command(const char *name, int argc, char **argv)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(name, commands[i].name)) return commands[i].run(argc, argv);
    dw_complain("there is no %s \"%s\"; run `deltawire --help' for a list",
                *name == '-' ? "option" : "command", name);
    return DW_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";
    dw_check_stdout_at_exit();
    if (!*command) {
        fputs(help, stderr);
        return DW_EXIT_USAGE;
    }
    if (!strcmp(command, "help") && argc > 2) {
        char option[] = "--help", *of_command[] = {argv[0], argv[2], option, NULL};
        return run_command(argv[2], 2, of_command + 1);
    }
    if (!strcmp(command, "--help") || !strcmp(command, "-h") || !strcmp(command, "help")) {
        fputs(help, stdout);
        return DW_EXIT_OK;
    }
    if (!strcmp(command, "--version")) {
        printf("deltawire %s\n", dw_version());
        return DW_EXIT_OK;
    }
    return run_command(command, argc - 1, argv + 1);
}
