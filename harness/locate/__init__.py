"""Where damage comes from: quantizers or layers are put right one set at a time, and the outputs measured."""
