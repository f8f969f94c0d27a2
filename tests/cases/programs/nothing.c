/* Needs the libraries and does nothing with them. */
int main(void) { return 0; }
