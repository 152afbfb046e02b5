// RUN: stem-opt %s --stem-to-linalg='stem-vocabulary-block=128' | FileCheck %s

// The teacher's logits in the blocks of the vocabulary that the student's have.

// CHECK-LABEL: func.func @losses
// CHECK-SAME: tensor<64x8xf32>, %[[H:[a-z0-9]+]]: tensor<300x8xf32>, %{{.*}}: tensor<64xi32>, %{{.*}}: tensor<64x4xf32>, %[[G:[a-z0-9]+]]: tensor<300x4xf32>
// CHECK: scf.for
// CHECK:   tensor.extract_slice %[[H]][%{{.*}}, 0] [%{{.*}}, 8]
// CHECK:   tensor.extract_slice %[[G]][%{{.*}}, 0] [%{{.*}}, 4]
// CHECK:   scf.yield %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>
// CHECK: math.log
func.func @losses(%x: tensor<64x8xf32>, %h: tensor<300x8xf32>, %l: tensor<64xi32>, %y: tensor<64x4xf32>, %g: tensor<300x4xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %nll, %kl = stem.distillation %x, %h, %l from %y, %g : (tensor<64x8xf32>, tensor<300x8xf32>, tensor<64xi32>, tensor<64x4xf32>, tensor<300x4xf32>) -> (tensor<64xf32>, tensor<64xf32>)
  return %nll, %kl : tensor<64xf32>, tensor<64xf32>
}

// A chunk has the student's logits, a tile the teacher's; the student's are
// multiplied once.

// CHECK-LABEL: func.func @step
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x8xf32>, %[[H:[a-z0-9]+]]: !stem.packed<8x25600xf32>, %[[T:[a-z0-9]+]]: !stem.packed<25600x8xf32>
// CHECK-SAME: %[[G:[a-z0-9]+]]: !stem.packed<4x25600xf32>
// CHECK: scf.for
// CHECK:   tensor.empty() : tensor<640x25600xf32>
// CHECK:   scf.forall
// CHECK:     %[[OWN:.*]] = stem.packed_matmul %{{.*}}, %[[H]]{{.*}} -> tensor<64x25600xf32>
// CHECK:     %[[WANTED:.*]] = stem.packed_matmul %{{.*}}, %[[G]]{{.*}} -> tensor<64x25600xf32>
// CHECK:     linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins(%[[OWN]], %[[WANTED]],
// CHECK:     %[[D:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]} ins(%[[OWN]],
// CHECK:     stem.packed_matmul %[[D]], %[[T]]{{.*}} -> tensor<64x8xf32>
// CHECK-NOT: stem.packed_matmul
// CHECK:   stem.panel_matmul
func.func @step(%x: tensor<?x8xf32>, %h: !stem.packed<8x25600xf32>, %t: !stem.packed<25600x8xf32>, %l: tensor<?xi32>, %y: tensor<?x4xf32>, %g: !stem.packed<4x25600xf32>, %c: tensor<?xf32>, %d: tensor<?xf32>, %nll: tensor<?xf32> {stem.output}, %kl: tensor<?xf32> {stem.output}, %dh: tensor<25600x8xf32> {stem.output}) -> (tensor<?xf32>, tensor<?xf32>, tensor<25600x8xf32>, tensor<?x8xf32>) attributes {stem.tile = 64 : i64} {
  %0:4 = stem.distillation_step %x, %h, %l from %y, %g by %c, %d transposed %t : (tensor<?x8xf32>, !stem.packed<8x25600xf32>, tensor<?xi32>, tensor<?x4xf32>, !stem.packed<4x25600xf32>, tensor<?xf32>, tensor<?xf32>, !stem.packed<25600x8xf32>) -> (tensor<?xf32>, tensor<?xf32>, tensor<?x8xf32>, tensor<25600x8xf32>)
  return %0#0, %0#1, %0#3, %0#2 : tensor<?xf32>, tensor<?xf32>, tensor<25600x8xf32>, tensor<?x8xf32>
}
