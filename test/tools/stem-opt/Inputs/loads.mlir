stem.param @g = "g" : tensor<4xf32>
func.func private @other() -> tensor<4xf32> {
  %0 = stem.param_load @g : tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = arith.addf %x, %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
