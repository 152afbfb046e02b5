# Finds the packaged MLIR 22 and links it as shared libraries only: a mix of
# static and shared MLIR registers every option and type twice.
list(APPEND CMAKE_PREFIX_PATH /usr/lib/llvm-22)
find_package(MLIR REQUIRED CONFIG)
if(NOT LLVM_VERSION_MAJOR EQUAL 22)
  message(FATAL_ERROR "Stem needs MLIR 22, found ${LLVM_PACKAGE_VERSION}: run scripts/install-packages.sh")
endif()
list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR})
include(TableGen)
include(AddLLVM)
include(AddMLIR)

add_library(stem_mlir INTERFACE)
target_include_directories(stem_mlir SYSTEM INTERFACE
  ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
separate_arguments(llvm_definitions NATIVE_COMMAND ${LLVM_DEFINITIONS})
# The packaged libraries are built with NDEBUG; some pass classes change their
# size without it, so every unit that sees MLIR must agree.
target_compile_definitions(stem_mlir INTERFACE ${llvm_definitions} NDEBUG)
target_link_libraries(stem_mlir INTERFACE MLIR LLVM)
