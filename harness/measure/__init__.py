"""What quantization did to the numbers: error metrics of outputs, range bounds of quantizers."""
