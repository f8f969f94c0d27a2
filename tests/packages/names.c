/* Stands in for libopenblas.so.0 while `linked` is linked: only its names count. */
void dgemm_(void) {}
void dgesv_(void) {}
void openblas_set_num_threads(void) {}
void openblas_get_num_threads(void) {}
void openblas_get_config(void) {}
