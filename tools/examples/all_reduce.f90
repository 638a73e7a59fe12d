! Kolo from Fortran: an interface module for the functions used, and a program. Rank ROOT (an argument; 0 without it)
! hands a weight to all; each contributes weight * (rank + 1).

module kolo
  use, intrinsic :: iso_c_binding
  implicit none

  ! As in kolo.h, in its order.
  enum, bind(c)
    enumerator :: KOLO_I8, KOLO_U8, KOLO_I32, KOLO_U32, KOLO_I64, KOLO_U64, KOLO_F16, KOLO_BF16, KOLO_F32, KOLO_F64
  end enum
  enum, bind(c)
    enumerator :: KOLO_SUM, KOLO_PROD, KOLO_MIN, KOLO_MAX, KOLO_AVG
  end enum

  interface
    integer(c_int) function kolo_comm_create(attr, out) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: attr              ! c_null_ptr: rank, size and id come from the launcher
      type(c_ptr), intent(out) :: out
    end function

    subroutine kolo_comm_destroy(comm) bind(c)
      import :: c_ptr
      type(c_ptr), value :: comm
    end subroutine

    integer(c_int) function kolo_comm_rank(comm) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: comm
    end function

    integer(c_int) function kolo_comm_nranks(comm) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: comm
    end function

    ! src and dst are c_loc of an array with the target attribute; n counts its elements.
    integer(c_int) function kolo_all_reduce(comm, src, dst, n, dtype, op, queue) bind(c)
      import :: c_int, c_size_t, c_ptr
      type(c_ptr), value :: comm, src, dst, queue
      integer(c_size_t), value :: n
      integer(c_int), value :: dtype, op
    end function

    integer(c_int) function kolo_broadcast(comm, src, dst, n, dtype, root, queue) bind(c)
      import :: c_int, c_size_t, c_ptr
      type(c_ptr), value :: comm, src, dst, queue
      integer(c_size_t), value :: n
      integer(c_int), value :: dtype, root
    end function

    type(c_ptr) function kolo_last_error() bind(c)
      import :: c_ptr
    end function

    integer(c_size_t) function c_strlen(text) bind(c, name="strlen")
      import :: c_size_t, c_ptr
      type(c_ptr), value :: text
    end function
  end interface

contains

  ! Ends the program with the library's text when status is an error.
  subroutine check(what, status)
    use, intrinsic :: iso_fortran_env, only: error_unit
    character(*), intent(in) :: what
    integer(c_int), intent(in) :: status
    character(kind=c_char), pointer :: text(:)

    if (status >= 0) return
    call c_f_pointer(kolo_last_error(), text, [c_strlen(kolo_last_error())])
    write (error_unit, '(*(a))') what, ": ", text
    stop 1, quiet=.true.
  end subroutine

end module

program all_reduce
  use kolo
  use, intrinsic :: iso_fortran_env, only: error_unit
  implicit none
  type(c_ptr) :: comm
  real(c_float), target :: x(1000)
  real(c_double), target :: weight(1)
  integer(c_int) :: rank, nranks, root
  integer :: status
  character(12) :: argument

  root = 0
  if (command_argument_count() > 0) then
    call get_command_argument(1, argument)
    read (argument, *, iostat=status) root
    if (status /= 0) then
      write (error_unit, '(3a)') "ROOT ", trim(argument), ": want a number"
      stop 2, quiet=.true.
    end if
  end if

  call check("joining", kolo_comm_create(c_null_ptr, comm))
  rank = kolo_comm_rank(comm)
  nranks = kolo_comm_nranks(comm)

  weight = rank + 1
  call check("broadcast", kolo_broadcast(comm, c_loc(weight), c_loc(weight), size(weight, kind=c_size_t), &
                                         KOLO_F64, root, c_null_ptr))
  x = real(weight(1)) * real(rank + 1)
  call check("all_reduce", kolo_all_reduce(comm, c_loc(x), c_loc(x), size(x, kind=c_size_t), &
                                           KOLO_F32, KOLO_SUM, c_null_ptr))

  print '(a, i0, a, i0, a, i0)', "rank ", rank, " of ", nranks, ": the sum is ", nint(x(size(x)))
  call kolo_comm_destroy(comm)
  if (any(nint(x) /= (root + 1) * nranks * (nranks + 1) / 2)) then
    print '(a)', "the sum is wrong"
    stop 1, quiet=.true.
  end if
end program
