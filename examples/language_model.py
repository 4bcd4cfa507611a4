import sys
from icltheory import bridge, induction

model = bridge.load_checkpoint(sys.argv[1])  # a folder, a GGUF file, a name on the hub
for head in induction.find_heads(model)[:3]:  # attention to the token to copy, 0 to 1
    print(f"layer {head.layer}, head {head.head}: {head.prefix_matching:.2f}")
