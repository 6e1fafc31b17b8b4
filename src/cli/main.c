/* espalier: the command. */
#include "cli.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const cli_command_t *const commands[] = {
    &cli_inspect, &cli_cluster, &cli_plan, &cli_compare, &cli_simulate, &cli_run, &cli_profile,
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void print_usage(FILE *stream)
{
    (void)fputs("usage: espalier COMMAND ARGUMENT [OPTION...]\n\n", stream);
    for (int i = 0; i < N_COMMANDS; i++)
        (void)fprintf(stream, "  %-9s %-6s %s\n", commands[i]->name, commands[i]->operand,
                      commands[i]->help);
    (void)fputs("\nespalier COMMAND --help explains a command; espalier --version says which one\n"
                "this is. Exit status: 0 done, 1 the input is bad, 2 usage, 3 no plan fits the\n"
                "devices, 4 internal fault.\n",
                stream);
}

static void print_help(const cli_command_t *command)
{
    (void)printf(
        "usage: espalier %s %s%s [OPTION...]\n\n%s\n\noptions:\n", command->name, command->operand,
        (command->bit & (CLI_PLAN | CLI_COMPARE)) != 0 ? " -c CLUSTER" : "", command->about);
    cli_options_help(command);
    (void)printf("\nexample:\n  %s\n", command->example);
}

static int unknown_command(const char *word)
{
    const char *names[N_COMMANDS + 1] = {NULL};
    for (int i = 0; i < N_COMMANDS; i++)
        names[i] = commands[i]->name;
    const char *nearest = cli_nearest(word, names);
    if (word[0] == '-')
        cli_error("unknown option %s; see espalier --help", word);
    else if (nearest != NULL)
        cli_error("unknown command %s; did you mean %s?", word, nearest);
    else
        cli_error("unknown command %s; see espalier --help", word);
    return CLI_USAGE;
}

static int run_command(const cli_command_t *command, int argc, char **argv)
{
    cli_args_t args;
    int result = cli_args_parse(command, argc, argv, &args);
    if (result == CLI_DONE && args.help) {
        print_help(command);
        result = cli_print("");
    } else if (result == CLI_DONE) {
        result = command->run(&args);
    }
    cli_args_fini(&args);
    return result;
}

/* Where one of the three is closed a file would take its number, and what is printed. */
static void hold_standard_files(void)
{
    int file;
    do
        file = open("/dev/null", O_RDONLY); /* writing there fails, as it should */
    while (file >= 0 && file <= STDERR_FILENO);
    if (file >= 0)
        (void)close(file);
}

int main(int argc, char **argv)
{
    hold_standard_files();
    (void)signal(SIGPIPE, SIG_IGN); /* a closed pipe is a write error, and reported as one */
    if (argc < 2) {
        print_usage(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        (void)printf("espalier %s\n", esp_version());
        return cli_print("");
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_usage(stdout);
        return cli_print("");
    }
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(argv[1], commands[i]->name) == 0)
            return run_command(commands[i], argc, argv);
    return unknown_command(argv[1]);
}
