import jax
from icltheory import microscope, models, training
from icltheory import regression as reg

source = reg.LinearPopulation.isotropic(2, noise_var=0.25)
network = models.transformer(dim=2, num_examples=8, width=32, num_layers=2)
fit = training.fit(network, source, steps=1000, key=jax.random.key(0))
found = microscope.identify(fit.model, source, num_examples=8, key=jax.random.key(1))
print(found.summary)
