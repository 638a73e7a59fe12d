/* What nvcc has made of a file of kernels, as bytes: KERNELS is the file's name, NAME theirs. */
	.section .rodata
	.balign 16
	.global NAME
	.hidden NAME
NAME:
	.incbin KERNELS
	.byte 0
	.section .note.GNU-stack,"",%progbits
