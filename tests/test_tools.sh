#!/bin/sh
# The rule checkers refuse what they are there to refuse.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/tools" "$dir/include/espalier" "$dir/src/graph/kinds" "$dir/src/base" "$dir/src/sim" \
    "$dir/src/cli"
cp "$ESP_SOURCE_DIR"/tools/check_* "$dir/tools"
cp "$ESP_SOURCE_DIR/.clang-format" "$dir"
cd "$dir"
touch include/espalier/base.h include/espalier/graph.h include/espalier/sim.h
touch src/base/base.h src/graph/own.h src/sim/sim_internal.h

failures=0
# refuse TOOL PATTERN [ARGUMENT]: it fails and says so
refuse() {
    if output=$("tools/$1" ${3-} 2>&1) || ! echo "$output" | grep -q "$2"; then
        printf '%s should have said: %s\nsaid: %s\n' "$1" "$2" "$output"
        failures=1
    fi
}
accept() {
    if ! output=$("tools/$1" ${2-} 2>&1); then
        printf '%s should have passed\nsaid: %s\n' "$1" "$output"
        failures=1
    fi
}

printf '#include "base/base.h"\n#include "graph/own.h"\n#include "espalier/graph.h"\n' >src/graph/a.c
printf '/* printf(malloc) */ static const char s[] = "exit(1)"; int esp_i_free(void);\n' >>src/graph/a.c
cp src/graph/a.c src/graph/kinds/b.c
printf '#include "espalier/graph.h"\n' >src/sim/c.c
printf '#include "espalier/sim.h"\n#include <sys/inotify.h>\nint x = printf("");\n' >src/cli/main.c
accept check_layers

# a file of graph with this line is refused for that reason
while IFS='|' read -r line reason; do
    printf '%s\n' "$line" >src/graph/bad.c
    refuse check_layers "src/graph/bad.c:1: $reason"
done <<'E2'
#include "espalier/sim.h"|graph includes espalier/sim.h of a module below it
#include "espalier/none.h"|espalier/none.h does not exist
#include "sim/sim_internal.h"|graph includes the internal header sim/sim_internal.h of sim
#include "nowhere.h"|"nowhere.h" is found neither
#include <jansson.h>|<jansson.h> belongs into one file of base
#include <gsl/gsl_math.h>|<gsl/gsl_math.h> is not a known header
    p = malloc(3);|the library must not call malloc
    exit (1);|the library must not call exit
    fprintf(stderr, "x");|the library must not write to the terminal
    puts("x");|the library must not call puts
E2
rm src/graph/bad.c
printf '#include "base/base.h"\n' >src/cli/bad.c
refuse check_layers "cli includes the internal header base/base.h of base"
rm src/cli/bad.c
printf '#include <mpi.h>\n' >include/espalier/graph.h
refuse check_layers "a public header includes mpi.h"
printf '#include "espalier/sim.h"\n' >include/espalier/graph.h
refuse check_layers "graph includes espalier/sim.h of a module below it"
: >include/espalier/graph.h

accept check_licences
printf '/* GNU General Public License */\n' >src/sim/copied.c
refuse check_licences "src/sim/copied.c: mentions the GPL"
rm src/sim/copied.c

printf '#define ESP_PUBLIC\nESP_PUBLIC int *esp_one(int a,\n    int b);\n' >include/espalier/base.h
library() {
    printf '%s\n' 'static int hidden; int *esp_one(int a, int b) { return a + b ? &hidden : 0; }' \
        "$@" >lib.c
    cc -shared -fPIC lib.c -o lib.so
}
library 'static const int fine = 3; const int *const internal __attribute__((visibility("hidden"))) = &fine;'
refuse check_symbols "hidden is a mutable global (.bss)" lib.so
sed -i 's/^    "metis_mutex"/    "hidden": "a test",\n&/' tools/check_symbols
accept check_symbols lib.so
library 'void esp_two(void) {}'
refuse check_symbols "esp_two is exported but not declared ESP_PUBLIC" lib.so
library 'static __thread int local = 1; int *f(void); __attribute__((visibility("hidden"))) int *f(void) { return &local; }'
refuse check_symbols "local is a mutable global (.tdata)" lib.so
printf 'ESP_PUBLIC extern const int *const esp_three[];\n' >>include/espalier/base.h
refuse check_symbols "esp_three is declared ESP_PUBLIC but not exported" lib.so
: >include/espalier/base.h

rm src/cli/main.c
printf '/* printf(malloc) */\n' >src/graph/a.c
cp src/graph/a.c src/graph/kinds/b.c
accept check_format
printf 'int  x ;\n' >src/graph/a.c
refuse check_format "src/graph/a.c"
exit $failures
