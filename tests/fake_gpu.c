/* What PyTorch asks of an NVIDIA driver before it computes with fake tensors on a GPU: how many GPUs there are. */
static signed char devices = 0;
void pretend(int n) { devices = (signed char) n; }
signed char _ZN3c104cuda12device_countEv(void) { return devices; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { *flags = 0; *active = 0; return 0; }
int cuInit(unsigned flags) { return 100; }
int cuDriverGetVersion(int *version) { *version = 0; return 100; }
int cuGetErrorString(int error, const char **text) { *text = "there is no GPU"; return 0; }
