/* The table of all options, and the parser that it drives. */
#include "cli.h"

#include "espalier/onnx.h"
#include "espalier/profile.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef enum kind { FLAG, INTEGER, REAL, TEXT, LIST, CHOICE } kind_t;

enum {
    MODEL = CLI_INSPECT | CLI_PLAN | CLI_COMPARE | CLI_PROFILE,
    SEARCH = CLI_PLAN | CLI_COMPARE
};

typedef struct option {
    const char *name;
    char letter; /* 0: none */
    kind_t kind;
    uint32_t commands;
    size_t value;            /* offset in cli_args_t */
    const char *argument;    /* for the help */
    double min, max;         /* INTEGER, REAL: inclusive */
    const char *const *list; /* CHOICE: names in the order of the enum */
    size_t given;            /* offset of a bool that is set; 0: none */
    const char *help;
} option_t;

static const char *const losses[] = {"auto", "xent", "mse", "output", NULL};
static const char *const optimizers[] = {"sgd", "momentum", "adam", "adamw", NULL};
static const char *const precisions[] = {"fp32", "tf32", "fp16", "bf16", NULL};
static const char *const link_modes[] = {"exclusive", "fair", NULL};
static const char *const strategies[] = {"search",
#define STRATEGY_NAME(name, text) text,
                                         ESP_BASELINE_MAP(STRATEGY_NAME)
#undef STRATEGY_NAME
                                             NULL};
static const char *const batchnorms[] = {"local", "sync", NULL};
static const char *const schedules[] = {"constant", "step", "cosine", "linear", NULL};
static const char *const backends[] = {"cpu", "reference", NULL};
static const char *const collectives[] = {"own", "mpi", "auto", NULL};

#define AT(field) offsetof(cli_args_t, field)
#define MOST      9e15 /* integers beyond are not exact as doubles */
static const option_t options[] = {
    /* model */
    {"batch", 0, INTEGER, MODEL, AT(batch), "N", 1, 1e12, NULL, 0,
     "samples of one step; default: as in the model, 32 where it is open"},
    {"batch-dim", 0, LIST, MODEL, AT(batch_dim), "NAME=AXIS", 0, 0, NULL, 0,
     "axis of input NAME that is the batch, or none; may be repeated"},
    {"dim", 0, LIST, MODEL, AT(dim), "NAME=N", 0, 0, NULL, 0,
     "value of another symbolic dimension; may be repeated"},
    {"loss", 0, CHOICE, MODEL, AT(loss), "KIND", 0, 0, losses, 0,
     "auto: a scalar output, else xent"},
    {"ignore-label", 0, INTEGER, MODEL, AT(ignore_label), "N", -MOST, MOST, NULL, 0,
     "label that xent leaves out; default: none"},
    {"optimizer", 0, CHOICE, MODEL, AT(optimizer), "KIND", 0, 0, optimizers, 0, "update rule"},
    {"lr", 0, REAL, MODEL, AT(lr), "X", 0, 1e9, NULL, 0, "learning rate"},
    {"momentum", 0, REAL, MODEL, AT(momentum), "X", 0, 0.999999, NULL, 0, "of momentum"},
    {"beta1", 0, REAL, MODEL, AT(beta1), "X", 0, 0.999999, NULL, 0, "of adam, adamw"},
    {"beta2", 0, REAL, MODEL, AT(beta2), "X", 0, 0.999999, NULL, 0, "of adam, adamw"},
    {"epsilon", 0, REAL, MODEL, AT(epsilon), "X", 0, 1e9, NULL, 0, "of adam, adamw"},
    {"weight-decay", 0, REAL, MODEL, AT(weight_decay), "X", 0, 1e9, NULL, 0, "weight decay"},
    {"clip-norm", 0, REAL, MODEL, AT(clip_norm), "X", 0, 1e18, NULL, 0,
     "clip gradients to this global norm; 0: do not"},
    {"train", 0, TEXT, MODEL, AT(train), "REGEX", 0, 0, NULL, 0,
     "train only the parameters whose name matches"},
    {"freeze", 0, TEXT, MODEL, AT(freeze), "REGEX", 0, 0, NULL, 0,
     "do not train the parameters whose name matches"},
    {"no-decay", 0, TEXT, MODEL, AT(no_decay), "REGEX", 0, 0, NULL, 0,
     "no weight decay for the parameters whose name matches"},
    {"precision", 0, CHOICE, MODEL & ~CLI_PROFILE, AT(precision), "P", 0, 0, precisions, 0,
     "arithmetic of the devices"},
    /* inspect, cluster */
    {"ops", 0, FLAG, CLI_INSPECT, AT(ops), NULL, 0, 0, NULL, 0,
     "no model: list the op kinds and the ONNX ops that are understood"},
    {"forward", 0, FLAG, CLI_INSPECT, AT(forward), NULL, 0, 0, NULL, 0,
     "only the model graph; derive no training step"},
    {"dump", 0, FLAG, CLI_INSPECT, AT(dump), NULL, 0, 0, NULL, 0,
     "print the training graph as text instead"},
    {"dump", 0, FLAG, CLI_CLUSTER, AT(dump), NULL, 0, 0, NULL, 0,
     "print the cluster as canonical YAML instead"},
    {"dot", 0, FLAG, CLI_CLUSTER, AT(dot), NULL, 0, 0, NULL, 0, "print a Graphviz digraph instead"},
    /* plan, compare, simulate */
    {"cluster", 'c', TEXT, CLI_PROFILE, AT(cluster), "FILE", 0, 0, NULL, 0,
     "measure its devices: under mpirun, or as threads"},
    {"cluster", 'c', TEXT, SEARCH, AT(cluster), "FILE", 0, 0, NULL, 0,
     "the cluster (required); docs/clusters.md"},
    {"output", 'o', TEXT, CLI_PLAN, AT(output), "FILE", 0, 0, NULL, 0, "write the plan there"},
    {"output", 'o', TEXT, CLI_PROFILE, AT(output), "FILE", 0, 0, NULL, 0,
     "write the costs there; default: standard output"},
    {"trace", 0, TEXT, CLI_PLAN | CLI_SIMULATE | CLI_RUN, AT(trace), "FILE", 0, 0, NULL, 0,
     "write the timeline there, for Perfetto or chrome://tracing"},
    {"measured", 0, TEXT, CLI_COMPARE | CLI_MEASURED, AT(measured), "TRACE", 0, 0, NULL, 0,
     "compare a plan with this trace of its run (run --trace)"},
    {"costs", 0, TEXT, CLI_INSPECT | SEARCH | CLI_SIMULATE | CLI_RUN | CLI_MEASURED, AT(costs),
     "FILE", 0, 0, NULL, 0, "measured costs (espalier profile)"},
    {"strategy", 0, CHOICE, CLI_PLAN, AT(strategy), "NAME", 0, 0, strategies, 0,
     "a baseline as it is; compare lists them"},
    {"evaluations", 0, INTEGER, SEARCH, AT(evaluations), "N", 0, 1e9, NULL, 0,
     "strategies to try beyond the baselines"},
    {"time", 0, REAL, SEARCH, AT(time_s), "S", 0, 1e7, NULL, 0,
     "stop after about that many seconds; 0: no limit"},
    {"threads", 0, INTEGER, SEARCH, AT(threads), "N", 1, 64, NULL, 0,
     "worker threads; they do not change the result"},
    {"groups", 0, INTEGER, SEARCH, AT(groups), "N", 1, 4096, NULL, 0,
     "op groups that are decided one by one, at most"},
    {"links", 0, CHOICE, SEARCH | CLI_SIMULATE | CLI_MEASURED, AT(links), "MODE", 0, 0, link_modes,
     AT(links_given), "how transfers share a link"},
    {"batchnorm", 0, CHOICE, SEARCH, AT(batchnorm), "MODE", 0, 0, batchnorms, 0,
     "statistics per device or per batch"},
    {"barrier", 0, FLAG, SEARCH | CLI_SIMULATE, AT(barrier), NULL, 0, 0, NULL, AT(barrier_given),
     "predict one isolated step, not the steady state"},
    /* run */
    {"data", 0, LIST, CLI_RUN, AT(data), "NAME=FILE", 0, 0, NULL, 0,
     "rows of input NAME, .npy; may be repeated; default: made up"},
    {"in-order", 0, FLAG, CLI_RUN, AT(in_order), NULL, 0, 0, NULL, 0,
     "rows in the order of the file, not shuffled"},
    {"steps", 0, INTEGER, CLI_RUN, AT(steps), "N", 0, MOST, NULL, AT(steps_given),
     "steps in all, with those before --resume"},
    {"epochs", 0, INTEGER, CLI_RUN, AT(epochs), "N", 1, 1e9, NULL, 0,
     "instead of --steps: times through the data; default: by steps"},
    {"weights", 0, TEXT, CLI_RUN, AT(weights), "FILE", 0, 0, NULL, 0,
     "initial weights: .safetensors, .onnx, or the word seed"},
    {"schedule", 0, CHOICE, CLI_RUN, AT(schedule), "KIND", 0, 0, schedules, 0,
     "course of the rate"},
    {"warmup", 0, INTEGER, CLI_RUN, AT(warmup), "N", 0, MOST, NULL, 0,
     "first steps, in which the rate rises"},
    {"min-rate", 0, REAL, CLI_RUN, AT(min_rate), "X", 0, 1e9, NULL, 0,
     "where cosine and linear end, and step stays"},
    {"decay-every", 0, INTEGER, CLI_RUN, AT(decay_every), "N", 1, MOST, NULL, 0,
     "step: steps between two cuts of the rate"},
    {"decay-factor", 0, REAL, CLI_RUN, AT(decay_factor), "X", 0, 1, NULL, 0,
     "step: what a cut leaves"},
    {"eval-data", 0, LIST, CLI_RUN, AT(eval_data), "NAME=FILE", 0, 0, NULL, 0,
     "evaluate on these rows at the end"},
    {"eval", 0, INTEGER, CLI_RUN, AT(evaluate_every), "N", 0, MOST, NULL, 0,
     "and after every N steps"},
    {"checkpoint", 0, TEXT, CLI_RUN, AT(checkpoint), "FILE", 0, 0, NULL, 0,
     "write the state there at the end (.safetensors)"},
    {"checkpoint-every", 0, INTEGER, CLI_RUN, AT(checkpoint_every), "N", 0, MOST, NULL, 0,
     "and after every N steps"},
    {"resume", 0, TEXT, CLI_RUN, AT(resume), "FILE", 0, 0, NULL, 0, "go on from a checkpoint"},
    {"log", 0, TEXT, CLI_RUN, AT(log), "FILE", 0, 0, NULL, 0,
     "one line of JSON per step: step, loss, rate"},
    {"log-times", 0, FLAG, CLI_RUN, AT(log_times), NULL, 0, 0, NULL, 0,
     "samples/s in the log, too"},
    {"backend", 0, CHOICE, CLI_RUN | CLI_PROFILE, AT(backend), "NAME", 0, 0, backends, 0,
     "kernels"},
    {"double", 0, FLAG, CLI_RUN, AT(wide), NULL, 0, 0, NULL, 0,
     "floats are double; with --backend reference"},
    {"collectives", 0, CHOICE, CLI_RUN, AT(collectives), "WHOSE", 0, 0, collectives, 0,
     "who adds up and gathers; auto: by --costs"},
    {"map", 0, LIST, CLI_RUN, AT(map), "DEVICE,..", 0, 0, NULL, 0,
     "device of each rank; default: those of the plan in order"},
    {"status", 0, TEXT, CLI_RUN, AT(status_file), "FILE", 0, 0, NULL, 0,
     "keep there what each rank is doing"},
    /* profile */
    {"type", 0, TEXT, CLI_PROFILE, AT(type), "NAME", 0, 0, NULL, AT(type_given),
     "device type that this machine is; default: local"},
    {"links", 0, FLAG, CLI_PROFILE, AT(measure_links), NULL, 0, 0, NULL, 0,
     "measure messages between each two devices, too"},
    {"seconds", 0, REAL, CLI_PROFILE, AT(seconds), "S", 0, 3600, NULL, 0,
     "for each share of the batch, at least"},
    {"runs", 0, INTEGER, CLI_PROFILE, AT(runs), "N", 1, 1e6, NULL, 0,
     "steps for each share of the batch, at least"},
    {"shares", 0, INTEGER, CLI_PROFILE, AT(shares), "N", 1, 8, NULL, 0,
     "how many: the batch, a half of it, a quarter, ..."},
    /* output */
    {"seed", 0, INTEGER, CLI_ALL, AT(seed), "N", 0, MOST, NULL, 0, "of everything that is random"},
    {"json", 0, FLAG, CLI_ALL, AT(json), NULL, 0, 0, NULL, 0,
     "one JSON document on standard output"},
    {"quiet", 'q', FLAG, CLI_ALL, AT(quiet), NULL, 0, 0, NULL, 0,
     "no progress and no text; errors, files and --json remain"},
    {"verbose", 'v', FLAG, CLI_ALL, AT(verbose), NULL, 0, 0, NULL, 0, "whole lists"},
    {"help", 'h', FLAG, CLI_ALL, AT(help), NULL, 0, 0, NULL, 0, "this text"},
};
enum { N_OPTIONS = sizeof options / sizeof *options };

/* ---- defaults ----------------------------------------------------------------------------- */

/* Those of the library, but for the threads: as many as there are processors. */
static void set_defaults(cli_args_t *args)
{
    esp_training_opts_t training = esp_training_opts_default();
    esp_search_opts_t search = esp_search_opts_default();
    esp_schedule_opts_t schedule = esp_schedule_opts_default();
    esp_profile_opts_t profile = esp_profile_opts_default();
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    *args = (cli_args_t){
        .seed = (int64_t)search.seed,
        .ignore_label = training.ignore_label,
        .loss = training.loss,
        .optimizer = training.optimizer,
        .precision = ESP_PRECISION_FP32,
        .lr = training.rate,
        .momentum = training.momentum,
        .beta1 = training.beta1,
        .beta2 = training.beta2,
        .epsilon = training.epsilon,
        .weight_decay = training.decay,
        .clip_norm = training.clip_norm,
        .evaluations = search.evaluations,
        .time_s = search.time_s,
        .threads = processors < 1    ? 1
                   : processors > 64 ? 64
                                     : processors,
        .groups = search.max_groups,
        .links = search.links,
        .batchnorm = search.sync_batchnorm,
        .barrier = search.barrier != 0,
        .steps = 100,
        .schedule = ESP_SCHEDULE_CONSTANT,
        .decay_every = schedule.every,
        .decay_factor = schedule.gamma,
        .type = "local",
        .runs = profile.runs,
        .shares = profile.shares,
        .seconds = profile.seconds,
    };
}

/* ---- names -------------------------------------------------------------------------------- */

/* Levenshtein distance; words of more than 31 characters are far from everything. */
static size_t distance(const char *a, const char *b)
{
    size_t row[32], n = strlen(b);
    if (strlen(a) > 31 || n > 31)
        return 32;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t above = row[j], best = diagonal + (a[i - 1] != b[j - 1]);
            best = above + 1 < best ? above + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            diagonal = above;
            row[j] = best;
        }
    }
    return row[n];
}

const char *cli_nearest(const char *word, const char *const *names)
{
    const char *nearest = NULL;
    size_t least = strlen(word) / 3 + 2; /* as many slips as a word of that length may have */
    for (; *names != NULL; names++) {
        size_t d = distance(word, *names);
        if (d < least) {
            least = d;
            nearest = *names;
        }
    }
    return nearest;
}

static const option_t *find_option(const cli_command_t *command, const char *name, size_t length)
{
    for (int i = 0; i < N_OPTIONS; i++)
        if ((options[i].commands & command->bit) != 0 && strlen(options[i].name) == length &&
            strncmp(options[i].name, name, length) == 0)
            return &options[i];
    return NULL;
}

static const option_t *find_letter(const cli_command_t *command, char letter)
{
    for (int i = 0; i < N_OPTIONS; i++)
        if ((options[i].commands & command->bit) != 0 && options[i].letter == letter)
            return &options[i];
    return NULL;
}

static int unknown_option(const cli_command_t *command, const char *word)
{
    const char *names[N_OPTIONS + 1];
    char name[64];
    int n = 0;
    for (int i = 0; i < N_OPTIONS; i++)
        if ((options[i].commands & command->bit) != 0)
            names[n++] = options[i].name;
    names[n] = NULL;
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    const char *nearest = cli_nearest(name + strspn(name, "-"), names);
    if (nearest != NULL)
        cli_error("unknown option %s of %s; did you mean --%s?", name, command->name, nearest);
    else
        cli_error("unknown option %s of %s; see espalier %s --help", name, command->name,
                  command->name);
    return CLI_USAGE;
}

/* ---- values ------------------------------------------------------------------------------- */

static int set_number(const option_t *option, const char *value, void *target)
{
    char *end;
    errno = 0;
    double number = strtod(value, &end);
    bool whole = option->kind == INTEGER;
    if (end == value || *end != '\0' || (whole && strspn(value, "+-0123456789") != strlen(value))) {
        cli_error("--%s %s: not a %s", option->name, value, whole ? "whole number" : "number");
        return CLI_USAGE;
    }
    if (!(number >= option->min && number <= option->max)) {
        cli_error("--%s %s: must be from %.15g to %.15g", option->name, value, option->min,
                  option->max);
        return CLI_USAGE;
    }
    if (whole)
        *(int64_t *)target = (int64_t)number;
    else
        *(double *)target = number;
    return CLI_DONE;
}

static int set_choice(const option_t *option, const char *value, int64_t *target)
{
    char all[128] = "";
    size_t length = 0;
    for (int i = 0; option->list[i] != NULL; i++) {
        if (strcmp(option->list[i], value) == 0) {
            *target = i;
            return CLI_DONE;
        }
        length += (size_t)snprintf(all + length, sizeof all - length, "%s%s", i > 0 ? ", " : "",
                                   option->list[i]);
    }
    cli_error("--%s %s: must be one of %s", option->name, value, all);
    return CLI_USAGE;
}

static int append_list(const char *value, char **target)
{
    size_t old = *target != NULL ? strlen(*target) + 1 : 0;
    char *joined = realloc(*target, old + strlen(value) + 1);
    if (joined == NULL) {
        cli_error("out of memory");
        return CLI_FAULT;
    }
    if (old > 0)
        joined[old - 1] = ',';
    memcpy(joined + old, value, strlen(value) + 1);
    *target = joined;
    return CLI_DONE;
}

static int set_value(const option_t *option, const char *value, cli_args_t *args)
{
    void *target = (char *)args + option->value;
    if (option->given != 0)
        *((bool *)args + option->given) = true; /* sizeof(bool) == 1, asserted below */
    switch (option->kind) {
    case FLAG:
        *(bool *)target = true;
        return CLI_DONE;
    case INTEGER:
    case REAL:
        return set_number(option, value, target);
    case TEXT:
        if (value[0] == '\0') {
            cli_error("--%s needs a value that is not empty", option->name);
            return CLI_USAGE;
        }
        *(const char **)target = value;
        return CLI_DONE;
    case LIST:
        return append_list(value, target);
    case CHOICE:
        return set_choice(option, value, target);
    }
    return CLI_FAULT;
}
_Static_assert(sizeof(bool) == 1, "offsets of flags are counted in bytes");

/* ---- words -------------------------------------------------------------------------------- */

/* The words of the command line that are still to be read. */
typedef struct words {
    int argc, next;
    char **argv;
    const option_t *unmeasured; /* the first that says nothing with --measured */
} words_t;

static int take_value(const option_t *option, const char *attached, words_t *words,
                      cli_args_t *args)
{
    if ((option->commands & CLI_MEASURED) == 0 && words->unmeasured == NULL)
        words->unmeasured = option;
    if (option->kind == FLAG) {
        if (attached == NULL)
            return set_value(option, NULL, args);
        cli_error("--%s takes no value", option->name);
        return CLI_USAGE;
    }
    if (attached == NULL && words->next == words->argc) {
        cli_error("--%s needs a value: %s", option->name, option->argument);
        return CLI_USAGE;
    }
    return set_value(option, attached != NULL ? attached : words->argv[words->next++], args);
}

static int parse_long(const cli_command_t *command, const char *word, words_t *words,
                      cli_args_t *args)
{
    size_t length = strcspn(word + 2, "=");
    const option_t *option = find_option(command, word + 2, length);
    if (option == NULL)
        return unknown_option(command, word);
    return take_value(option, word[2 + length] == '=' ? word + 3 + length : NULL, words, args);
}

/* -c FILE, -cFILE, -qv */
static int parse_short(const cli_command_t *command, const char *word, words_t *words,
                       cli_args_t *args)
{
    for (const char *letter = word + 1; *letter != '\0'; letter++) {
        const option_t *option = find_letter(command, *letter);
        if (option == NULL)
            return unknown_option(command, word);
        if (option->kind != FLAG)
            return take_value(option, letter[1] != '\0' ? letter + 1 : NULL, words, args);
        int status = take_value(option, NULL, words, args);
        if (status != CLI_DONE)
            return status;
    }
    return CLI_DONE;
}

static int parse_operand(const cli_command_t *command, const char *word, cli_args_t *args)
{
    if (args->operand != NULL) {
        cli_error("%s takes one %s; \"%s\" is one too many", command->name, command->operand, word);
        return CLI_USAGE;
    }
    if (word[0] == '\0') {
        cli_error("%s needs a %s that is not empty", command->name, command->operand);
        return CLI_USAGE;
    }
    args->operand = word;
    return CLI_DONE;
}

int cli_args_parse(const cli_command_t *command, int argc, char **argv, cli_args_t *args)
{
    words_t words = {.argc = argc, .next = 2, .argv = argv};
    bool only_operands = false;
    int status = CLI_DONE;
    set_defaults(args);
    while (words.next < argc && status == CLI_DONE) {
        const char *word = argv[words.next++];
        if (only_operands || word[0] != '-' || word[1] == '\0')
            status = parse_operand(command, word, args);
        else if (strcmp(word, "--") == 0)
            only_operands = true;
        else if (word[1] == '-')
            status = parse_long(command, word, &words, args);
        else
            status = parse_short(command, word, &words, args);
    }
    if (status != CLI_DONE || args->help)
        return status;
    if (args->operand == NULL && !args->ops && !args->measure_links) {
        cli_error("%s needs a %s; see espalier %s --help", command->name, command->operand,
                  command->name);
        return CLI_USAGE;
    }
    if ((command->bit & SEARCH) != 0 && args->cluster == NULL && args->measured == NULL) {
        cli_error("%s needs a cluster: -c FILE", command->name);
        return CLI_USAGE;
    }
    if (args->measured != NULL && words.unmeasured != NULL) {
        cli_error("--%s says nothing with --measured: the plan has been made",
                  words.unmeasured->name);
        return CLI_USAGE;
    }
    return CLI_DONE;
}

void cli_args_fini(cli_args_t *args)
{
    free(args->batch_dim);
    free(args->dim);
    free(args->data);
    free(args->eval_data);
    free(args->map);
}

/* ---- help --------------------------------------------------------------------------------- */

static void print_default(const cli_command_t *command, const option_t *option,
                          const cli_args_t *args)
{
    const void *value = (const char *)args + option->value;
    if (option->kind == CHOICE && option->list == strategies) { /* too many for a line */
        (void)printf(" (default %s)", strategies[0]);
    } else if (option->kind == CHOICE) {
        (void)fputs(" (", stdout);
        for (int i = 0; option->list[i] != NULL; i++)
            (void)printf("%s%s", i > 0 ? ", " : "", option->list[i]);
        if (command->bit == CLI_SIMULATE)
            (void)fputs("; default: as the plan says)", stdout);
        else
            (void)printf("; default %s)", option->list[*(const int64_t *)value]);
    } else if (option->kind == REAL) {
        (void)printf(" (default %g)", *(const double *)value);
    } else if (option->kind == INTEGER && strcmp(option->name, "threads") == 0) {
        (void)printf(" (default: the processors)");
    } else if (option->kind == INTEGER && strstr(option->help, "default") == NULL) {
        (void)printf(" (default %" PRId64 ")", *(const int64_t *)value);
    }
}

void cli_options_help(const cli_command_t *command)
{
    cli_args_t args;
    set_defaults(&args);
    for (int i = 0; i < N_OPTIONS; i++) {
        char left[64];
        const option_t *option = &options[i];
        if ((option->commands & command->bit) == 0)
            continue;
        (void)snprintf(left, sizeof left, "%c%c%s--%s%s%s", option->letter != 0 ? '-' : ' ',
                       option->letter != 0 ? option->letter : ' ',
                       option->letter != 0 ? ", " : "  ", option->name,
                       option->argument != NULL ? " " : "",
                       option->argument != NULL ? option->argument : "");
        (void)printf("  %-25s %s", left, option->help);
        print_default(command, option, &args);
        (void)printf("\n");
    }
}
