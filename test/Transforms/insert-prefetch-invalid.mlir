// RUN: stem-opt %s -split-input-file --stem-insert-prefetch -verify-diagnostics

func.func @no_entry(%ids: tensor<?xi32>, %t: !stem.table<9x16xf32>) {
  // expected-error @+1 {{'stem.table_rows' op stands in 'no_entry', which is no entry: pass the rows as arguments}}
  %r, %i = stem.table_rows %t, %ids : !stem.table<9x16xf32>, tensor<?xi32> -> tensor<?x16xf32>, tensor<?xi32>
  return
}

// -----

func.func @nested(%c: i1, %ids: tensor<?xi32>, %t: !stem.table<9x16xf32>) attributes {stem.entry} {
  scf.if %c {
    // expected-error @+1 {{'stem.table_rows' op stands in a region or among several blocks: an entry looks its tables up in straight-line code}}
    %r, %i = stem.table_rows %t, %ids : !stem.table<9x16xf32>, tensor<?xi32> -> tensor<?x16xf32>, tensor<?xi32>
  }
  return
}

// -----

stem.table @t = "t" : !stem.table<9x16xf32>
func.func @unbound(%ids: tensor<?xi32>) attributes {stem.entry} {
  %t = stem.table_load @t : !stem.table<9x16xf32>
  // expected-error @+1 {{'stem.table_rows' op reads a table that is no argument of the entry: run stem-bind-params first}}
  %r, %i = stem.table_rows %t, %ids : !stem.table<9x16xf32>, tensor<?xi32> -> tensor<?x16xf32>, tensor<?xi32>
  return
}

// -----

// Every offending op is reported.
func.func @returned(%ids: tensor<?xi32>, %t: !stem.table<9x16xf32>) -> (tensor<?x16xf32>, tensor<?x16xf32>) attributes {stem.entry} {
  // expected-error @+1 {{'stem.table_rows' op has rows, or an index, that the entry returns: they are the table store's, look them up first}}
  %r, %i = stem.table_rows %t, %ids : !stem.table<9x16xf32>, tensor<?xi32> -> tensor<?x16xf32>, tensor<?xi32>
  // expected-error @+1 {{'stem.table_rows' op has rows, or an index, that the entry returns}}
  %s, %j = stem.table_rows %t, %ids : !stem.table<9x16xf32>, tensor<?xi32> -> tensor<?x16xf32>, tensor<?xi32>
  %0 = arith.negf %s : tensor<?x16xf32>
  return %r, %0 : tensor<?x16xf32>, tensor<?x16xf32>
}

// -----

func.func @index(%ids: tensor<?xi32>, %t: !stem.table<9x16xf32>) -> tensor<?x16xf32> attributes {stem.entry} {
  %r, %i = stem.table_rows %t, %ids : !stem.table<9x16xf32>, tensor<?xi32> -> tensor<?x16xf32>, tensor<?xi32>
  // expected-error @+1 {{'stem.table_rows' op has the index of another lookup for ids: the store numbers rows as it likes}}
  %s, %j = stem.table_rows %t, %i : !stem.table<9x16xf32>, tensor<?xi32> -> tensor<?x16xf32>, tensor<?xi32>
  %0 = stem.lookup %s, %j : tensor<?x16xf32>, tensor<?xi32> -> tensor<?x16xf32>
  return %0 : tensor<?x16xf32>
}
