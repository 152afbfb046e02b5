# Compile flags shared by every target, and the two helpers that the
# sub-directories use: stem_add_library(NAME [SHARED]) and stem_add_test(NAME).

add_library(stem_flags INTERFACE)
target_include_directories(stem_flags INTERFACE
  ${CMAKE_SOURCE_DIR}/include ${CMAKE_BINARY_DIR}/include)
target_compile_options(stem_flags INTERFACE
  -Wall -Wextra -Werror -Wno-unused-parameter -fno-omit-frame-pointer)
if(STEM_SANITIZE)
  target_compile_options(stem_flags INTERFACE
    -fsanitize=${STEM_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(stem_flags INTERFACE -fsanitize=${STEM_SANITIZE})
endif()

# Eigen, single-threaded so that its sums have one order. Its code is inline:
# all that link it take the same instruction set, the least that the runtime's
# kernels accept.
add_library(stem_eigen INTERFACE)
target_link_libraries(stem_eigen INTERFACE Eigen3::Eigen)
target_compile_definitions(stem_eigen INTERFACE
  EIGEN_DONT_PARALLELIZE EIGEN_MPL2_ONLY)
target_compile_options(stem_eigen INTERFACE -mavx2 -mfma)

# Coverage of the libraries, which guides the fuzzers.
if(STEM_BUILD_FUZZERS)
  target_compile_options(stem_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    ${CCACHE_PROGRAM})
endif()

# Every .cpp of the current folder becomes one library.
function(stem_add_library name)
  cmake_parse_arguments(ARG "SHARED" "" "LINK;EXCLUDE" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  foreach(excluded ${ARG_EXCLUDE})
    list(FILTER sources EXCLUDE REGEX "/${excluded}$")
  endforeach()
  if(NOT sources)
    return()
  endif()
  if(ARG_SHARED)
    add_library(${name} SHARED ${sources})
  else()
    add_library(${name} STATIC ${sources})
  endif()
  target_link_libraries(${name} PUBLIC stem_flags ${ARG_LINK})
endfunction()

# Every .cpp of the current folder becomes one GoogleTest program.
function(stem_add_test name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  if(NOT sources)
    return()
  endif()
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE stem_flags ${ARG_LINK} GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE
    STEM_TEST_DATA="${CMAKE_SOURCE_DIR}/test/data")
  add_test(NAME ${name} COMMAND ${name})
endfunction()
