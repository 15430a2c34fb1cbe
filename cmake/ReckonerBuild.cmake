# Compiler settings and the two functions that every folder's CMakeLists.txt uses.
get_filename_component(RECKONER_ROOT ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})

option(RECKONER_STATIC "Link third-party libraries statically where the distribution ships archives" ON)
set(RECKONER_SANITIZE "" CACHE STRING "Value for -fsanitize=, e.g. address,undefined")
option(RECKONER_FUZZ "Build the fuzz targets (needs clang)" OFF)

find_program(RECKONER_CCACHE ccache)
if(RECKONER_CCACHE)
  # ccache declines what is compiled with a precompiled header unless it is told not to mind the header's own time and macros.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${RECKONER_CCACHE})
endif()

# Members left out of a designated initialiser have defaults: that is what those are for.
# Floating point is IEEE everywhere: results may not depend on the compiler's taste for fused operations.
add_compile_options(-Wall -Wextra -Werror -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers -ffp-contract=off)
if(RECKONER_SANITIZE)
  add_compile_options(-fsanitize=${RECKONER_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-maybe-uninitialized)  # g++ 12 finds it in its own <regex> when instrumented
    if(RECKONER_SANITIZE MATCHES thread)
      add_compile_options(-Wno-tsan)  # Asio has fences beside its locks; ThreadSanitizer goes by the locks
    endif()
  endif()
  add_link_options(-fsanitize=${RECKONER_SANITIZE})
elseif(RECKONER_STATIC)
  add_link_options(-static-libstdc++ -static-libgcc)
endif()

if(RECKONER_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)  # coverage of the code under test, not only of the targets
endif()

if(RECKONER_STATIC)
  set(Boost_USE_STATIC_LIBS ON)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a .so)
endif()
find_package(Threads REQUIRED)
find_package(Boost 1.81 REQUIRED COMPONENTS json context)
find_package(fmt REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto SSL)
find_package(SQLite3 REQUIRED)
# The distributions ship no archive of fmt: its functions are compiled here, once. What has to be named for that is fmt 9's; of other
# versions the headers alone will do.
if(RECKONER_STATIC AND NOT RECKONER_SANITIZE AND fmt_VERSION VERSION_LESS 10)
  add_library(reckoner_fmt STATIC ${RECKONER_ROOT}/cmake/fmt.cpp)
  set_target_properties(reckoner_fmt PROPERTIES POSITION_INDEPENDENT_CODE ON)  # the CUDA backend is a shared library
else()
  add_library(reckoner_fmt INTERFACE)
  if(RECKONER_STATIC AND NOT RECKONER_SANITIZE)
    target_link_libraries(reckoner_fmt INTERFACE fmt::fmt-header-only)
  else()
    target_link_libraries(reckoner_fmt INTERFACE fmt::fmt)
  endif()
endif()
# Asio and Beast are compiled once, in asio.cpp, instead of in every file that includes them.
add_library(reckoner_asio STATIC ${RECKONER_ROOT}/cmake/asio.cpp)
target_link_libraries(reckoner_asio PUBLIC OpenSSL::SSL OpenSSL::Crypto Threads::Threads)
target_compile_definitions(reckoner_asio PUBLIC BOOST_ASIO_SEPARATE_COMPILATION BOOST_BEAST_SEPARATE_COMPILATION)
find_package(GTest REQUIRED)

# Code that only drives other code, and is never slow itself, need not be optimised to be checked: it compiles in half the time.
function(reckoner_compile_quickly target)
  if(RECKONER_SANITIZE AND NOT RECKONER_FUZZ)
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()

# Tests are no part of what is shipped: -O1 compiles them in four fifths of the time. The code that they test is optimised as always.
function(reckoner_compile_as_test target)
  if(NOT RECKONER_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  reckoner_compile_quickly(${target})
endfunction()

# The headers that most files include are parsed once, not 450 times: a quarter of the time of a build. A precompiled header serves only
# targets with the very same flags, so there is one for libraries, one for those compiled quickly and one for tests. Kernels have flags of
# their own and do without; ThreadSanitizer's build does too, so that a check still sees when a file lacks an #include.
if(RECKONER_SANITIZE MATCHES thread)
  set(precompiled_default OFF)
else()
  set(precompiled_default ON)
endif()
option(RECKONER_PRECOMPILED "Precompile the headers of others that most files include" ${precompiled_default})
set(precompiled_options "")
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # A precompiled header loses what the standard library's own headers silence: of GCC's guesses while it optimises some are then reported
  # inside of <string> that are not so. Builds without precompiled headers still make them.
  foreach(guess array-bounds stringop-overflow stringop-overread restrict maybe-uninitialized)
    list(APPEND precompiled_options -Wno-${guess})
  endforeach()
endif()
if(RECKONER_PRECOMPILED)
  foreach(kind library quick test)
    add_library(reckoner_precompiled_${kind} OBJECT ${RECKONER_ROOT}/cmake/precompiled.cpp)
    target_link_libraries(reckoner_precompiled_${kind} PRIVATE reckoner_fmt Threads::Threads)
  endforeach()
  reckoner_compile_quickly(reckoner_precompiled_quick)
  reckoner_compile_as_test(reckoner_precompiled_test)
  target_link_libraries(reckoner_precompiled_test PRIVATE GTest::gtest)
  target_precompile_headers(reckoner_precompiled_library PRIVATE ${RECKONER_ROOT}/cmake/precompiled.h)
  target_precompile_headers(reckoner_precompiled_quick PRIVATE ${RECKONER_ROOT}/cmake/precompiled.h)
  target_precompile_headers(reckoner_precompiled_test PRIVATE ${RECKONER_ROOT}/cmake/precompiled_test.h)
endif()

# reckoner_precompiled(<target> library|quick|test): that target uses the precompiled header of that kind.
function(reckoner_precompiled target kind)
  if(RECKONER_PRECOMPILED)
    target_precompile_headers(${target} REUSE_FROM reckoner_precompiled_${kind})
    target_compile_options(${target} PRIVATE ${precompiled_options})
  endif()
endfunction()

# reckoner_library(<layer> [QUICK | PRECOMPILED] [EXCLUDE <folder>] DEPS <targets>): every *.cpp of this folder but the tests becomes
# reckoner_<layer>, and its *_test.cpp files become one test program <layer>_test. EXCLUDE: a folder in it that is a library of its own.
# QUICK: see reckoner_compile_quickly; it includes PRECOMPILED: with the precompiled headers, for layers without flags of their own.
function(reckoner_library name)
  cmake_parse_arguments(ARG "QUICK;PRECOMPILED" "EXCLUDE" "DEPS;TEST_DEPS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  if(ARG_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "^${CMAKE_CURRENT_SOURCE_DIR}/${ARG_EXCLUDE}/")
  endif()
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_(test|fuzz)\\.cpp$")
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  if(sources)
    add_library(reckoner_${name} STATIC ${sources})
    target_include_directories(reckoner_${name} PUBLIC ${RECKONER_ROOT}/src)
    target_link_libraries(reckoner_${name} PUBLIC ${ARG_DEPS})
    if(ARG_QUICK)
      reckoner_compile_quickly(reckoner_${name})
      reckoner_precompiled(reckoner_${name} quick)
    elseif(ARG_PRECOMPILED)
      reckoner_precompiled(reckoner_${name} library)
    endif()
  else()
    add_library(reckoner_${name} INTERFACE)
    target_include_directories(reckoner_${name} INTERFACE ${RECKONER_ROOT}/src)
    target_link_libraries(reckoner_${name} INTERFACE ${ARG_DEPS})
  endif()
  if(tests)
    reckoner_test(${name}_test SOURCES ${tests} DEPS reckoner_${name} ${ARG_TEST_DEPS})
  endif()
endfunction()

# reckoner_test(<name> SOURCES <files> DEPS <targets>): a GoogleTest program, run by ctest from the repository root.
function(reckoner_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  reckoner_compile_as_test(${name})
  reckoner_precompiled(${name} test)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${RECKONER_ROOT})
endfunction()

# reckoner_fuzz(<name> <sources> DEPS <targets>): a libFuzzer program, only with RECKONER_FUZZ.
function(reckoner_fuzz name)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  if(NOT RECKONER_FUZZ)
    return()
  endif()
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
endfunction()
