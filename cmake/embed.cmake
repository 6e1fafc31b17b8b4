# A file as a C array. esp_embed(OUTPUT INPUT SYMBOL) adds the rule that writes OUTPUT, which defines
# `const unsigned char SYMBOL[]` (a NUL follows the bytes) and `const size_t SYMBOL_length`.
# Run as a script (cmake -P) with the same three as variables, it does the writing.
set(esp_embed_script ${CMAKE_CURRENT_LIST_FILE})

function(esp_embed output input symbol)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -D OUTPUT=${output} -D INPUT=${input} -D SYMBOL=${symbol}
            -P ${esp_embed_script}
    DEPENDS ${input} ${esp_embed_script}
    COMMENT "Embedding ${input}")
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
  file(READ ${INPUT} hex HEX)
  string(LENGTH "${hex}" digits)
  math(EXPR length "${digits} / 2")
  string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1, " hex "${hex}")
  get_filename_component(name ${INPUT} NAME)
  file(WRITE ${OUTPUT} "/* ${name} */
#include <stddef.h>

extern const unsigned char ${SYMBOL}[];
extern const size_t ${SYMBOL}_length;
const unsigned char ${SYMBOL}[] = {
${hex}0x00};
const size_t ${SYMBOL}_length = ${length};
")
endif()
