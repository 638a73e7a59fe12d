/* kernels.cu as nvcc has compiled it, as bytes; KERNELS is the file's name. */
	.section .rodata
	.balign 16
	.global ko_gpu_kernels
	.hidden ko_gpu_kernels
ko_gpu_kernels:
	.incbin KERNELS
	.byte 0
	.section .note.GNU-stack,"",%progbits
