/* Made by tests/golden/make_convnet_losses.py with torch 2.15.0 - do not edit. */
enum { CONVNET_STEPS = 6 };
static const struct { double loss, spread; } golden_convnet[CONVNET_STEPS] = {
    {2.3072047, 1.2e-07},
    {2.2622838, 4.8e-07},
    {2.1806087, 3.6e-07},
    {2.0946088, 1.2e-07},
    {2.0656817, 2.4e-07},
    {1.8502290, 2.4e-07},
};
