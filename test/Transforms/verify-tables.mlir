// RUN: stem-opt %s -split-input-file -allow-unregistered-dialect --stem-verify-tables -verify-diagnostics

// What holds: on tensors, on buffers, two tables of a plan at once, a function
// that reads rows and one that returns something else.
func.func private @layer(%x: tensor<?x16xf32>, %rows: tensor<?x16xf32>, %index: tensor<?xi32>) -> tensor<?x16xf32> {
  %up = stem.lookup %rows, %index : tensor<?x16xf32>, tensor<?xi32> -> tensor<?x16xf32>
  %0 = arith.addf %x, %up : tensor<?x16xf32>
  return %0 : tensor<?x16xf32>
}
func.func @good(%x: tensor<?x16xf32>, %ids: tensor<?xi32>, %t: !stem.table<9x16xf32>, %u: !stem.table<9x16xf32>) -> tensor<?x16xf32> attributes {stem.entry} {
  %p = stem.plan_rows %ids : tensor<?xi32>
  %k = stem.prefetch %t, %p : !stem.table<9x16xf32> -> !stem.ticket<16xf32>
  %l = stem.prefetch %u, %p : !stem.table<9x16xf32> -> !stem.ticket<16xf32>
  %r, %i = stem.await %k : !stem.ticket<16xf32> -> tensor<?x16xf32>, tensor<?xi32>
  %c0 = arith.constant 0 : index
  %y = call @layer(%x, %r, %i) : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?xi32>) -> tensor<?x16xf32>
  stem.release %k : !stem.ticket<16xf32>
  %s, %j = stem.await %l : !stem.ticket<16xf32> -> tensor<?x16xf32>, tensor<?xi32>
  %again, %same = stem.await %l : !stem.ticket<16xf32> -> tensor<?x16xf32>, tensor<?xi32>
  %z = call @layer(%y, %s, %same) : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?xi32>) -> tensor<?x16xf32>
  stem.release %l : !stem.ticket<16xf32>
  // A size is not the contents, a result of a layer not its rows.
  %n = tensor.dim %j, %c0 : tensor<?xi32>
  %w = arith.addf %y, %z : tensor<?x16xf32>
  return %w : tensor<?x16xf32>
}
func.func @buffers(%y: memref<16xf32>, %ids: memref<?xi32>, %t: !stem.table<9x16xf32>) attributes {stem.entry} {
  %c0 = arith.constant 0 : index
  %p = stem.plan_rows %ids : memref<?xi32>
  %k = stem.prefetch %t, %p : !stem.table<9x16xf32> -> !stem.ticket<16xf32>
  %r, %i = stem.await %k : !stem.ticket<16xf32> -> memref<?x16xf32>, memref<?xi32>
  %v = memref.load %r[%c0, %c0] : memref<?x16xf32>
  stem.release %k : !stem.ticket<16xf32>
  memref.store %v, %y[%c0] : memref<16xf32>
  return
}

// -----

// V1
func.func @rows(%ids: tensor<?xi32>, %t: !stem.table<9x16xf32>) attributes {stem.entry} {
  // expected-error @+1 {{'stem.table_rows' op reads rows that nothing asks for: run stem-insert-prefetch}}
  %r, %i = stem.table_rows %t, %ids : !stem.table<9x16xf32>, tensor<?xi32> -> tensor<?x16xf32>, tensor<?xi32>
  return
}

// -----

// V2
func.func @branch(%c: i1, %ids: tensor<?xi32>, %t: !stem.table<9x16xf32>) attributes {stem.entry} {
  %p = stem.plan_rows %ids : tensor<?xi32>
  %k = stem.prefetch %t, %p : !stem.table<9x16xf32> -> !stem.ticket<16xf32>
  %r, %i = stem.await %k : !stem.ticket<16xf32> -> tensor<?x16xf32>, tensor<?xi32>
  scf.if %c {
    // expected-error @+1 {{'stem.release' op stands inside 'scf.if', so that not every path takes it: move it to the top level of an entry}}
    stem.release %k : !stem.ticket<16xf32>
  }
  return
}

// -----

// V2
func.func @blocks(%c: i1, %ids: tensor<?xi32>, %t: !stem.table<9x16xf32>) attributes {stem.entry} {
  // expected-error @+1 {{'stem.plan_rows' op stands in 'blocks', which has several blocks: an entry looks its tables up in straight-line code}}
  %p = stem.plan_rows %ids : tensor<?xi32>
  // expected-error @+1 {{'stem.prefetch' op stands in 'blocks', which has several blocks}}
  %k = stem.prefetch %t, %p : !stem.table<9x16xf32> -> !stem.ticket<16xf32>
  cf.cond_br %c, ^bb1, ^bb2
^bb1:
  // expected-error @+1 {{'stem.await' op stands in 'blocks', which has several blocks}}
  %r, %i = stem.await %k : !stem.ticket<16xf32> -> tensor<?x16xf32>, tensor<?xi32>
  cf.br ^bb2
^bb2:
  // expected-error @+1 {{'stem.release' op stands in 'blocks', which has several blocks}}
  stem.release %k : !stem.ticket<16xf32>
  return
}

// -----

// V2
func.func private @no_entry(%ids: tensor<?xi32>) {
  // expected-error @+1 {{'stem.plan_rows' op stands in 'no_entry', which is no entry, so that nothing could report its failure: pass the rows as arguments}}
  %p = stem.plan_rows %ids : tensor<?xi32>
  return
}

// -----

// V2, V3: the body of a module is a graph, in which a ticket may be its own.
// expected-error @+2 {{'stem.prefetch' op stands inside 'builtin.module'}}
// expected-error @+1 {{'stem.prefetch' op takes a plan that is not that of a stem.plan_rows of its entry}}
%k = stem.prefetch %t, %p : !stem.table<9x16xf32> -> !stem.ticket<16xf32>
// expected-error @+1 {{'unknown.cycle' op takes a ticket: only stem.await and stem.release do}}
%p, %t = "unknown.cycle"(%k) : (!stem.ticket<16xf32>) -> (!stem.row_plan, !stem.table<9x16xf32>)

// -----

// V3
func.func private @other(%t: !stem.table<9x16xf32>, %p: !stem.row_plan, %k: !stem.ticket<16xf32>)
func.func @passed(%ids: tensor<?xi32>, %t: !stem.table<9x16xf32>, %q: !stem.row_plan, %l: !stem.ticket<16xf32>) attributes {stem.entry} {
  %p = stem.plan_rows %ids : tensor<?xi32>
  // expected-error @+1 {{'stem.prefetch' op takes a plan that is not that of a stem.plan_rows of its entry}}
  %k = stem.prefetch %t, %q : !stem.table<9x16xf32> -> !stem.ticket<16xf32>
  // expected-error @+1 {{'stem.await' op takes a ticket that is not that of a stem.prefetch of its entry}}
  %r, %i = stem.await %l : !stem.ticket<16xf32> -> tensor<?x16xf32>, tensor<?xi32>
  // expected-error @+1 {{'stem.release' op takes a ticket that is not that of a stem.prefetch of its entry}}
  stem.release %l : !stem.ticket<16xf32>
  // expected-error @+3 {{'func.call' op takes a table: only stem.prefetch does}}
  // expected-error @+2 {{'func.call' op takes a plan: only stem.prefetch does}}
  // expected-error @+1 {{'func.call' op takes a ticket: only stem.await and stem.release do}}
  call @other(%t, %p, %k) : (!stem.table<9x16xf32>, !stem.row_plan, !stem.ticket<16xf32>) -> ()
  return
}

// -----

// V4, V5
func.func @forgotten(%ids: tensor<?xi32>, %t: !stem.table<9x16xf32>) attributes {stem.entry} {
  %p = stem.plan_rows %ids : tensor<?xi32>
  // expected-error @+2 {{'stem.prefetch' op asks for rows that nothing awaits}}
  // expected-error @+1 {{'stem.prefetch' op gives a ticket that is not released: its rows stay in the staging memory}}
  %k = stem.prefetch %t, %p : !stem.table<9x16xf32> -> !stem.ticket<16xf32>
  // expected-error @+1 {{'stem.prefetch' op gives a ticket that is not released}}
  %l = stem.prefetch %t, %p : !stem.table<9x16xf32> -> !stem.ticket<16xf32>
  %r, %i = stem.await %l : !stem.ticket<16xf32> -> tensor<?x16xf32>, tensor<?xi32>
  return
}

// -----

// V5, V6
func.func @twice(%ids: tensor<?xi32>, %t: !stem.table<9x16xf32>) attributes {stem.entry} {
  %p = stem.plan_rows %ids : tensor<?xi32>
  %k = stem.prefetch %t, %p : !stem.table<9x16xf32> -> !stem.ticket<16xf32>
  // expected-note @+2 {{it is released here already}}
  // expected-note @+1 {{the ticket is released here}}
  stem.release %k : !stem.ticket<16xf32>
  // expected-error @+1 {{'stem.await' op awaits a ticket that was released}}
  %r, %i = stem.await %k : !stem.ticket<16xf32> -> tensor<?x16xf32>, tensor<?xi32>
  // expected-error @+1 {{'stem.release' op ends a ticket once more}}
  stem.release %k : !stem.ticket<16xf32>
  return
}

// -----

// V6, on buffers.
func.func @late_on_buffers(%y: memref<16xf32>, %ids: memref<?xi32>, %t: !stem.table<9x16xf32>) attributes {stem.entry} {
  %c0 = arith.constant 0 : index
  %p = stem.plan_rows %ids : memref<?xi32>
  %k = stem.prefetch %t, %p : !stem.table<9x16xf32> -> !stem.ticket<16xf32>
  // expected-note @+1 {{the rows are awaited here}}
  %r, %i = stem.await %k : !stem.ticket<16xf32> -> memref<?x16xf32>, memref<?xi32>
  %part = memref.subview %r[2, 0] [4, 16] [1, 1] : memref<?x16xf32> to memref<4x16xf32, strided<[16, 1], offset: 32>>
  // expected-note @+1 {{the ticket is released here}}
  stem.release %k : !stem.ticket<16xf32>
  // expected-error @+1 {{'memref.load' op may read rows, or their index, that were given back}}
  %v = memref.load %part[%c0, %c0] : memref<4x16xf32, strided<[16, 1], offset: 32>>
  memref.store %v, %y[%c0] : memref<16xf32>
  return
}
