/* The tokens of standard input by the tokenizer in a folder, and what they stand for, for
 * test_zerotrain_data.py: numbers in one line, then the bytes.
 *
 * usage: zerotrain_bpe FOLDER */
#include "tools/zerotrain/data/bpe.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST = 1 << 22 };

int main(int argc, char **argv)
{
	char *text = malloc(MOST);
	token *tokens = malloc(MOST * sizeof(*tokens));
	size_t len = text ? fread(text, 1, MOST, stdin) : 0, bad = 0, part;
	struct bpe *b = NULL;
	int rc = argc == 2 && text && tokens ? bpe_open(argv[1], &b) : 2;
	long n = rc ? 0 : bpe_encode(b, text, len, tokens, &bad);

	for (long i = 0; i < n; i++)
		printf("%s%d", i ? " " : "", tokens[i]);
	printf("\n");
	for (long i = 0; i < n; i++) {
		const char *bytes = bpe_bytes(b, tokens[i], &part);

		fwrite(bytes, 1, part, stdout);
	}
	if (n < 0)
		fprintf(stderr, "byte %zu\n", bad);
	bpe_close(b);
	free(text);
	free(tokens);
	return rc ? rc : n < 0;
}
